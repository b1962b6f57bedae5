// One step of Lion on the CPU, in the calling thread. It needs lion_cpu.cc and simd.cc
// with what they include, and nothing else.
//
// Prints: param 0.90 1.90 3.10 4.00

#include <cstdio>

#include "brigade/kernels/lion/lion_cpu.h"
#include "brigade/kernels/lion/lion_parameters.h"

namespace {

namespace bk = brigade::kernels;

// One step, counted from 1, of `size` elements.
bk::StepError Step(float* param, float* m, const float* grad, int64_t size, int64_t step) {
  const bk::LionGroup group = {/*beta1=*/0.9, /*beta2=*/0.99, /*weight_decay=*/0.0};
  const float lr = 0.1f;
  const bk::LionParameters parameters =
      bk::MakeLionParameters(&group, 1, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
  const bk::LionSegment segment = {param, m, grad, /*param_copy=*/nullptr, size, /*group=*/0};
  // Any threads may take any parts of [0, size).
  return bk::LionRange<float, bk::NoCopy>(segment, parameters, 0, size);
}

}  // namespace

int main() {
  float param[4] = {1, 2, 3, 4}, m[4] = {};
  const float grad[4] = {8, 8, -8, 0};
  const bk::StepError error = Step(param, m, grad, 4, /*step=*/1);
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("param %.2f %.2f %.2f %.2f\n", param[0], param[1], param[2], param[3]);
}
