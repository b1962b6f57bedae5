// One step of LAMB on the CPU, in the calling thread. It needs lamb_cpu.cc and simd.cc with what
// they include, and nothing else.
//
// Prints: trust 0.50, param 0.45 0.45 -0.55 -0.55

#include <cstdio>

#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/lamb/lamb_parameters.h"

namespace {

namespace bk = brigade::kernels;

// One step, counted from 1, of a tensor of `size` elements, with room for the sums of its tiles,
// one for each kLambTile elements, and its trust ratio.
bk::StepError Step(float* param, float* m, float* v, const float* grad, bk::LambSums* tiles,
                   int64_t size, int64_t step, float* trust) {
  const bk::LambGroup group;
  const float lr = 0.1f;
  const bk::LambParameters parameters =
      bk::MakeLambParameters(&group, 1, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
  const bk::LambSegment tensor = {param, m, v, grad, /*param_copy=*/nullptr, size, /*group=*/0};
  // Any threads may take any tiles of a tensor; the ratio needs those of all.
  const bk::StepError error = bk::LambMomentsRange<float>(tensor, parameters, 0, size, tiles);
  if (error != bk::StepError::kNone) return error;
  *trust = bk::LambTrustOf(tensor, parameters, tiles);
  return bk::LambParamRange<bk::NoCopy>(tensor, parameters, *trust, 0, size);
}

}  // namespace

int main() {
  // In the first step the update is the sign of the gradient: its norm is 2, that of param 1.
  float param[4] = {0.5f, 0.5f, -0.5f, -0.5f}, m[4] = {}, v[4] = {}, trust = 0;
  const float grad[4] = {8, 8, 8, 8};
  bk::LambSums tiles[1];
  const bk::StepError error = Step(param, m, v, grad, tiles, 4, /*step=*/1, &trust);
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("trust %.2f, param %.2f %.2f %.2f %.2f\n", trust, param[0], param[1], param[2],
              param[3]);
}
