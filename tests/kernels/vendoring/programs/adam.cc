#include "brigade/kernels/adam/adam_parameters.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/adam/adam_cuda.h"
#else
#include "brigade/kernels/adam/adam_cpu.h"
#endif

namespace brigade::vendored {

using precision::BFloat16;
using precision::Half;

void RunAdam() {
  Array<float> param(Values<float>(kSize, 1));
  Array<float> m(Values<float>(kSize, 2));
  Array<float> v(std::vector<float>(kSize, 0.25f));
  Array<Half> grad(Values<Half>(kSize, 3));
  Array<BFloat16> copy(Values<BFloat16>(kSize, 4));
  kernels::AdamSegment segment = {};
  segment.param = param.data();
  segment.m = m.data();
  segment.v = v.data();
  segment.grad = grad.data();
  segment.param_copy = copy.data();
  segment.size = kSize;

  kernels::AdamGroup group;
  group.weight_decay = 0.1;
  const float lr = 1e-3f;
  kernels::OneStep step;
  step.step = 3;
  step.lr = &lr;
  step.grad_multiplier = 0.5f;
  const kernels::AdamParameters parameters =
      MakeAdamParameters(&group, 1, kernels::WeightDecayMode::kDecoupled, step);
#ifdef ON_CUDA
  Check(kernels::LaunchAdam<Half, BFloat16>(&segment, 1, parameters, nullptr));
#else
  for (const int64_t begin : {int64_t{0}, int64_t{1024}}) {
    const int64_t end = begin == 0 ? 1024 : kSize;
    const auto error = kernels::AdamRange<Half, BFloat16>(segment, parameters, begin, end);
    if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
  }
#endif
  param.Print("adam param");
  m.Print("adam m");
  v.Print("adam v");
  copy.Print("adam copy");
}

}  // namespace brigade::vendored
