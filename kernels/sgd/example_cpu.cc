// One step of SGD with momentum on the CPU, in the calling thread. It needs sgd_cpu.cc and simd.cc
// with what they include, and nothing else.
//
// Prints: param 0.20 1.20 2.20 3.20

#include <cstdio>

#include "brigade/kernels/sgd/sgd_cpu.h"
#include "brigade/kernels/sgd/sgd_parameters.h"

namespace {

namespace bk = brigade::kernels;

// One step, counted from 1, of `size` elements.
bk::StepError Step(float* param, float* momentum, const float* grad, int64_t size, int64_t step) {
  const bk::SgdGroup group = {/*momentum=*/0.9, /*dampening=*/0.0, /*weight_decay=*/0.0,
                              /*nesterov=*/false};
  const float lr = 0.1f;
  const bk::SgdParameters parameters = bk::MakeSgdParameters(
      &group, 1, bk::WeightDecayMode::kCoupled, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
  const bk::SgdSegment segment = {param, momentum, grad, /*param_copy=*/nullptr, size, /*group=*/0};
  // Any threads may take any parts of [0, size).
  return bk::SgdRange<float, bk::NoCopy>(segment, parameters, 0, size);
}

}  // namespace

int main() {
  float param[4] = {1, 2, 3, 4}, momentum[4] = {};
  const float grad[4] = {8, 8, 8, 8};
  const bk::StepError error = Step(param, momentum, grad, 4, /*step=*/1);
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("param %.2f %.2f %.2f %.2f\n", param[0], param[1], param[2], param[3]);
}
