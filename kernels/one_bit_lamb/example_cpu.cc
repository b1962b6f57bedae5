// A step of 1-bit LAMB on the CPU once second moments stay, in the calling thread, as of one rank
// whose message lost nothing. It needs one_bit_lamb_cpu.cc, lamb_cpu.cc and simd.cc with what they
// include, and nothing else.
//
// Prints: scale 1.00, factor 0.90, param 0.44325 0.44325 -0.55675 -0.55675

#include <cstdio>

#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cpu.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_parameters.h"

int main() {
  namespace bk = brigade::kernels;
  // After a warm-up of one step with gradients of 8.
  float param[4] = {0.45f, 0.45f, -0.55f, -0.55f};
  float m[4] = {4, 4, 4, 4}, fresh[4], message[4];
  const float v[4] = {16, 16, 16, 16}, grad[4] = {8, 8, 8, 8};
  float ratio = 0.05f, factor = 1.0f;

  bk::LambGroup group;
  group.beta1 = 0.5;
  group.beta2 = 0.75;
  group.eps = 1e-12;
  // No correction of bias: a step from which on there is none left.
  const float lr = 0.1f;
  const bk::OneStep step = {/*step=*/1000, &lr, /*grad_multiplier=*/1.0f};
  const bk::LambParameters parameters = bk::MakeLambParameters(&group, 1, step);
  const bk::OneBitLambConstants constants = bk::MakeOneBitLambConstants({});
  // One tile of one rank.
  const bk::LambTensor tiles = {/*first=*/0, /*count=*/1,  /*offset=*/0,
                                /*part=*/1,  /*stride=*/1,
                                /*group=*/0};
  bk::OneBitLambSums sums[1];
  const bk::OneBitLambSegment tensor = {param,
                                        m,
                                        v,
                                        fresh,
                                        /*mean=*/message,
                                        /*size=*/4,
                                        /*group=*/0,
                                        /*tensor=*/0,
                                        /*first_tile=*/0};
  bk::OneBitLambFreezeRange(tensor, 0, 4, sums);
  const double rms = bk::OneBitLambRootMeanSquare(tiles, 4, sums);
  const float scale = bk::OneBitLambScale(/*sum of all tensors=*/rms, /*tensors=*/1, rms);

  const bk::OneBitLambMessage own = {m, grad, message, /*size=*/4, /*group=*/0, /*tensor=*/0};
  bk::StepError error = bk::OneBitLambSendRange<float>(own, parameters, scale, 0, 4);
  // Here ranks exchange messages, and each gets the mean.
  bk::OneBitLambReceiveRange(own, scale, 0, 4);
  if (error == bk::StepError::kNone) {
    error = bk::OneBitLambMomentsRange(tensor, parameters, 0, 4, sums);
  }
  factor = bk::OneBitLambFactor(constants, /*weight_decay=*/0.0f, bk::OneBitLambSumsOf(tiles, sums),
                                factor);
  const bk::LambSegment update = {
      param,      m,          const_cast<float*>(v), grad, /*param_copy=*/nullptr,
      /*size=*/4, /*group=*/0};
  if (error == bk::StepError::kNone) {
    error = bk::LambParamRange<bk::NoCopy>(update, parameters, ratio * factor, 0, 4);
  }
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("scale %.2f, factor %.2f, param %.5f %.5f %.5f %.5f\n", scale, factor, param[0],
              param[1], param[2], param[3]);
}
