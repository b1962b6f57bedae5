#include "brigade/kernels/sgd/sgd_parameters.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/sgd/sgd_cuda.h"
#else
#include "brigade/kernels/sgd/sgd_cpu.h"
#endif

namespace brigade::vendored {

void RunSgd() {
  Array<float> param(Values<float>(kSize, 1));
  Array<float> momentum(Values<float>(kSize, 2));
  Array<float> grad(Values<float>(kSize, 3));
  kernels::SgdSegment segment = {};
  segment.param = param.data();
  segment.momentum = momentum.data();
  segment.grad = grad.data();
  segment.size = kSize;

  kernels::SgdGroup group;
  group.momentum = 0.9;
  group.weight_decay = 0.01;
  group.nesterov = true;
  const float lr = 0.1f;
  kernels::OneStep step;
  step.lr = &lr;
  const kernels::SgdParameters parameters =
      MakeSgdParameters(&group, 1, kernels::WeightDecayMode::kCoupled, step);
#ifdef ON_CUDA
  Check(kernels::LaunchSgd<float, kernels::NoCopy>(&segment, 1, parameters, nullptr));
#else
  const auto error = kernels::SgdRange<float, kernels::NoCopy>(segment, parameters, 0, kSize);
  if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
#endif
  param.Print("sgd param");
  momentum.Print("sgd momentum");
}

}  // namespace brigade::vendored
