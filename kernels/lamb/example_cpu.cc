// One step of LAMB on the CPU, in the calling thread. It needs lamb_cpu.cc and simd.cc with what
// they include, and nothing else.
//
// Prints: trust 0.50, param 0.45 0.45 -0.55 -0.55

#include <cstdio>

#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/lamb/lamb_parameters.h"

int main() {
  namespace bk = brigade::kernels;
  float param[4] = {0.5f, 0.5f, -0.5f, -0.5f}, m[4] = {}, v[4] = {};
  const float grad[4] = {8, 8, 8, 8};

  // In the first step the update is the sign of the gradient: its norm is 2, that of param 1.
  const bk::LambGroup group;
  const float lr = 0.1f;
  const bk::OneStep step = {/*step=*/1, &lr, /*grad_multiplier=*/1.0f};
  const bk::LambParameters parameters = bk::MakeLambParameters(&group, 1, step);
  const bk::LambSegment tensor = {param,      m, v, grad, /*param_copy=*/nullptr, /*size=*/4,
                                  /*group=*/0};
  // Any threads may take any tiles of a tensor; the ratio needs those of all.
  bk::LambSums tiles[1];
  bk::StepError error = bk::LambMomentsRange<float>(tensor, parameters, 0, 4, tiles);
  const float trust = bk::LambTrustOf(tensor, parameters, tiles);
  if (error == bk::StepError::kNone) {
    error = bk::LambParamRange<bk::NoCopy>(tensor, parameters, trust, 0, 4);
  }
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("trust %.2f, param %.2f %.2f %.2f %.2f\n", trust, param[0], param[1], param[2],
              param[3]);
}
