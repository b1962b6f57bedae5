// One step of AdamW on the CPU, in the calling thread. It needs adam_cpu.cc and simd.cc with what
// they include, and nothing else.
//
// Prints: param 0.99899 1.99898 2.99897 3.99896

#include <cstdio>

#include "brigade/kernels/adam/adam_cpu.h"
#include "brigade/kernels/adam/adam_parameters.h"

namespace {

namespace bk = brigade::kernels;

// One step, counted from 1, of `size` elements.
bk::StepError Step(float* param, float* m, float* v, const float* grad, int64_t size,
                   int64_t step) {
  const bk::AdamGroup group = {/*beta1=*/0.9, /*beta2=*/0.999, /*eps=*/1e-8,
                               /*weight_decay=*/0.01};
  const float lr = 1e-3f;
  const bk::AdamParameters parameters = bk::MakeAdamParameters(
      &group, 1, bk::WeightDecayMode::kDecoupled, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
  const bk::AdamSegment segment = {param, m, v, grad, /*param_copy=*/nullptr, size, /*group=*/0};
  // Any threads may take any parts of [0, size).
  return bk::AdamRange<float, bk::NoCopy>(segment, parameters, 0, size);
}

}  // namespace

int main() {
  float param[4] = {1, 2, 3, 4}, m[4] = {}, v[4] = {};
  const float grad[4] = {8, 8, 8, 8};
  const bk::StepError error = Step(param, m, v, grad, 4, /*step=*/1);
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("param %.5f %.5f %.5f %.5f\n", param[0], param[1], param[2], param[3]);
}
