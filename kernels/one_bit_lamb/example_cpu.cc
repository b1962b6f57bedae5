// A step of 1-bit LAMB on the CPU once second moments stay, in the calling thread, as of one rank
// whose message lost nothing. It needs one_bit_lamb_cpu.cc, lamb_cpu.cc and simd.cc with what they
// include, and nothing else.
//
// Prints: scale 1.00, factor 0.90, param 0.44325 0.44325 -0.55675 -0.55675

#include <cstdio>

#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cpu.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_parameters.h"

namespace {

namespace bk = brigade::kernels;

// What there is of a tensor, after a warm-up of one step with gradients of 8.
struct Tensor {
  float param[4] = {0.45f, 0.45f, -0.55f, -0.55f}, m[4] = {4, 4, 4, 4}, fresh[4], message[4];
  float v[4] = {16, 16, 16, 16}, grad[4] = {8, 8, 8, 8};
  float ratio = 0.05f, scale = 0.0f, factor = 1.0f;
  bk::OneBitLambSums sums[1];
};

// The parameters of a step, counted from 1: in a late one no bias is left to correct.
bk::LambParameters ParametersOf(int64_t step) {
  bk::LambGroup group;
  group.beta1 = 0.5;
  group.beta2 = 0.75;
  group.eps = 1e-12;
  const float lr = 0.1f;
  return bk::MakeLambParameters(&group, 1, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
}

// A tensor of one tile, of one rank.
const bk::LambTensor kTile = {/*first=*/0, /*count=*/1,  /*offset=*/0,
                              /*part=*/1,  /*stride=*/1,
                              /*group=*/0};

bk::OneBitLambSegment SegmentOf(Tensor& t) {
  return {t.param,         t.m,         t.v,          t.fresh, /*mean=*/t.message,
          /*size=*/4,      /*group=*/0, /*tensor=*/0,
          /*first_tile=*/0};
}
bk::OneBitLambMessage MessageOf(Tensor& t) {
  return {t.m, t.grad, t.message, /*size=*/4, /*group=*/0, /*tensor=*/0};
}

// Once: second moments stay as they are from now on.
void Freeze(Tensor& t) {
  bk::OneBitLambFreezeRange(SegmentOf(t), 0, 4, t.sums);
  const double rms = bk::OneBitLambRootMeanSquare(kTile, 4, t.sums);
  t.scale = bk::OneBitLambScale(/*sum of all tensors=*/rms, /*tensors=*/1, rms);
}

// In each step: what this rank sends; then ranks exchange messages, and each gets the mean.
bk::StepError Send(Tensor& t, int64_t step) {
  return bk::OneBitLambSendRange<float>(MessageOf(t), ParametersOf(step), t.scale, 0, 4);
}

// From the mean: the new first moment and parameter. Any threads may take any tiles.
bk::StepError Receive(Tensor& t, int64_t step) {
  const bk::LambParameters parameters = ParametersOf(step);
  bk::OneBitLambReceiveRange(MessageOf(t), t.scale, 0, 4);
  const bk::StepError error = bk::OneBitLambMomentsRange(SegmentOf(t), parameters, 0, 4, t.sums);
  if (error != bk::StepError::kNone) return error;
  t.factor = bk::OneBitLambFactor(bk::MakeOneBitLambConstants({}), /*weight_decay=*/0.0f,
                                  bk::OneBitLambSumsOf(kTile, t.sums), t.factor);
  const bk::LambSegment update = {t.param,    t.m, t.v, t.grad, /*param_copy=*/nullptr, /*size=*/4,
                                  /*group=*/0};
  return bk::LambParamRange<bk::NoCopy>(update, parameters, t.ratio * t.factor, 0, 4);
}

}  // namespace

int main() {
  Tensor t;
  Freeze(t);
  bk::StepError error = Send(t, /*step=*/1000);
  if (error == bk::StepError::kNone) error = Receive(t, /*step=*/1000);
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("scale %.2f, factor %.2f, param %.5f %.5f %.5f %.5f\n", t.scale, t.factor, t.param[0],
              t.param[1], t.param[2], t.param[3]);
}
