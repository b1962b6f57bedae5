// A meeting of 0/1 Adam on the CPU, in the calling thread, as of one rank whose message lost
// nothing. It needs zero_one_adam_cpu.cc and simd.cc with what they include, and nothing else.
//
// Prints: rates 0.30, moment 0.50 -1.00

#include <cstdio>

#include "brigade/kernels/zero_one_adam/zero_one_adam_cpu.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_parameters.h"

int main() {
  namespace bk = brigade::kernels;
  // Two steps with rates of 0.1 and 0.2, since the last meeting.
  const bk::AdamGroup group = {0.9, 0.999, 1e-8, 0.0};
  float betas[2];
  bk::FillZeroOneBetas(&group, /*count=*/1, betas);
  bk::ZeroOneNumbers numbers = {};
  bk::GroupStep meeting = {};
  const auto count = [&](bk::ZeroOneCall call, int64_t step, float lr) {
    const bk::OneStep one = {step, &lr, /*grad_multiplier=*/1.0f};
    const auto rates = bk::MakeZeroOneRates(call, /*groups=*/1, one, betas, &numbers, &meeting);
    const bk::StepError error = bk::CountRates(rates);
    if (error != bk::StepError::kNone) std::printf("the step %s\n", bk::Describe(error));
  };
  count(bk::ZeroOneCall::kLocal, 1, 0.1f);
  count(bk::ZeroOneCall::kSend, 2, 0.2f);
  // Here ranks exchange messages: sums of rates times moments.
  float message[2] = {0.15f, -0.3f};
  count(bk::ZeroOneCall::kMeet, 2, 0.2f);
  const bk::ZeroOneMessage tensor = {message, /*size=*/2, /*group=*/0};
  bk::ZeroOneElementsRange(bk::ZeroOneReceiveOperation{&numbers}, tensor, 0, 2);
  std::printf("rates %.2f, moment %.2f %.2f\n", meeting.lr, message[0], message[1]);
}
