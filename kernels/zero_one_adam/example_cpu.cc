// A meeting of 0/1 Adam on the CPU, in the calling thread, as of one rank whose message lost
// nothing. It needs zero_one_adam_cpu.cc and simd.cc with what they include, and nothing else.
//
// Prints: rates 0.30, moment 0.50 -1.00

#include <cstdio>

#include "brigade/kernels/zero_one_adam/zero_one_adam_cpu.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_parameters.h"

namespace {

namespace bk = brigade::kernels;

// Counts a step's rate, of one group, in a call of its kind; `numbers` are zeros at first.
bk::StepError Count(bk::ZeroOneCall call, int64_t step, float lr, const float* betas,
                    bk::ZeroOneNumbers* numbers, bk::GroupStep* meeting) {
  const bk::OneStep one = {step, &lr, /*grad_multiplier=*/1.0f};
  return bk::CountRates(bk::MakeZeroOneRates(call, /*groups=*/1, one, betas, numbers, meeting));
}

// In a meeting: from the mean of the ranks' messages to the new first moment.
void Receive(float* message, int64_t size, const bk::ZeroOneNumbers* numbers) {
  const bk::ZeroOneMessage tensor = {message, size, /*group=*/0};
  // Any threads may take any parts of [0, size).
  bk::ZeroOneElementsRange(bk::ZeroOneReceiveOperation{numbers}, tensor, 0, size);
}

}  // namespace

int main() {
  // Two steps with rates of 0.1 and 0.2, since the last meeting.
  const bk::AdamGroup group = {0.9, 0.999, 1e-8, 0.0};
  float betas[2];
  bk::FillZeroOneBetas(&group, /*count=*/1, betas);
  bk::ZeroOneNumbers n = {};
  bk::GroupStep meeting = {};
  bk::StepError error = Count(bk::ZeroOneCall::kLocal, 1, 0.1f, betas, &n, &meeting);
  if (error == bk::StepError::kNone) {
    error = Count(bk::ZeroOneCall::kSend, 2, 0.2f, betas, &n, &meeting);
  }
  // Here ranks exchange messages: sums of rates times moments.
  float message[2] = {0.15f, -0.3f};
  if (error == bk::StepError::kNone) {
    error = Count(bk::ZeroOneCall::kMeet, 2, 0.2f, betas, &n, &meeting);
  }
  if (error != bk::StepError::kNone) return 1;
  Receive(message, 2, &n);
  std::printf("rates %.2f, moment %.2f %.2f\n", meeting.lr, message[0], message[1]);
}
