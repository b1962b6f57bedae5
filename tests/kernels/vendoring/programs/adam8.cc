#include "brigade/kernels/adam8/adam8_parameters.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/adam8/adam8_cuda.h"
#else
#include "brigade/kernels/adam8/adam8_cpu.h"
#endif

namespace brigade::vendored {

using precision::BFloat16;
using precision::Half;

void RunAdam8() {
  const int64_t blocks = kernels::MomentBlocks(kSize);
  Array<float> param(Values<float>(kSize, 1));
  Array<uint8_t> m(std::vector<uint8_t>(kSize, 200));
  Array<uint8_t> v(std::vector<uint8_t>(kSize, 77));
  Array<float> m_scale(std::vector<float>(blocks, 2.0f));
  Array<float> v_scale(std::vector<float>(blocks, 4.0f));
  Array<Half> grad(Values<Half>(kSize, 3));
  Array<BFloat16> copy(Values<BFloat16>(kSize, 4));
  kernels::Adam8Segment segment = {};
  segment.param = param.data();
  segment.m = m.data();
  segment.v = v.data();
  segment.m_scale = m_scale.data();
  segment.v_scale = v_scale.data();
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
  Check(kernels::LaunchAdam8<Half, BFloat16>(&segment, 1, parameters, nullptr));
#else
  for (const int64_t begin : {int64_t{0}, int64_t{1024}}) {
    const int64_t end = begin == 0 ? 1024 : kSize;
    const auto error = kernels::Adam8Range<Half, BFloat16>(segment, parameters, begin, end);
    if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
  }
#endif
  param.Print("adam8 param");
  m.Print("adam8 m");
  v.Print("adam8 v");
  m_scale.Print("adam8 scales of m");
  v_scale.Print("adam8 scales of v");
  copy.Print("adam8 copy");
}

}  // namespace brigade::vendored
