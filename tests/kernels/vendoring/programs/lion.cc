#include "brigade/kernels/lion/lion_parameters.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/lion/lion_cuda.h"
#else
#include "brigade/kernels/lion/lion_cpu.h"
#endif

namespace brigade::vendored {

void RunLion() {
  Array<float> param(Values<float>(kSize, 1));
  Array<float> m(Values<float>(kSize, 2));
  Array<float> grad(Values<float>(kSize, 3));
  kernels::LionSegment segment = {};
  segment.param = param.data();
  segment.m = m.data();
  segment.grad = grad.data();
  segment.size = kSize;

  kernels::LionGroup group;
  group.weight_decay = 0.01;
  const float lr = 0.1f;
  kernels::OneStep step;
  step.lr = &lr;
  const kernels::LionParameters parameters = MakeLionParameters(&group, 1, step);
#ifdef ON_CUDA
  Check(kernels::LaunchLion<float, kernels::NoCopy>(&segment, 1, parameters, nullptr));
#else
  const auto error = kernels::LionRange<float, kernels::NoCopy>(segment, parameters, 0, kSize);
  if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
#endif
  param.Print("lion param");
  m.Print("lion m");
}

}  // namespace brigade::vendored
