#include "brigade/kernels/lamb/lamb_parameters.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/lamb/lamb_cuda.h"
#else
#include "brigade/kernels/lamb/lamb_cpu.h"
#endif

namespace brigade::vendored {

void RunLamb() {
  Array<float> param(Values<float>(kSize, 1));
  Array<float> m(Values<float>(kSize, 2));
  Array<float> v(std::vector<float>(kSize, 0.5f));
  Array<float> grad(Values<float>(kSize, 3));
  Array<kernels::LambSums> tiles(std::vector<kernels::LambSums>(1));
  kernels::LambSegment segment = {};
  segment.param = param.data();
  segment.m = m.data();
  segment.v = v.data();
  segment.grad = grad.data();
  segment.size = kSize;

  kernels::LambGroup group;
  group.weight_decay = 0.01;
  const float lr = 0.1f;
  kernels::OneStep step;
  step.lr = &lr;
  const kernels::LambParameters parameters = MakeLambParameters(&group, 1, step);
#ifdef ON_CUDA
  Check(
      kernels::LaunchLamb<float, kernels::NoCopy>(&segment, 1, parameters, tiles.data(), nullptr));
#else
  auto error = kernels::LambMomentsRange<float>(segment, parameters, 0, kSize, tiles.data());
  const float trust = kernels::LambTrustOf(segment, parameters, tiles.data());
  if (error == kernels::StepError::kNone) {
    error = kernels::LambParamRange<kernels::NoCopy>(segment, parameters, trust, 0, kSize);
  }
  if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
#endif
  param.Print("lamb param");
  m.Print("lamb m");
  v.Print("lamb v");
}

}  // namespace brigade::vendored
