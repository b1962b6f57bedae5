// A meeting of 0/1 Adam on the CPU, in the calling thread, as of one rank whose message lost
// nothing. It needs zero_one_adam_cpu.cc and simd.cc with what they include, and nothing else.
//
// Prints: rates 0.30, moment 0.50 -1.00

#include <cstdio>

#include "brigade/kernels/zero_one_adam/zero_one_adam_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  // Two steps with rates of 0.1 and 0.2, since the last meeting.
  bk::StepState state = {};
  state.step = 1;
  state.grad_multiplier = 1.0f;
  bk::GroupStep group = {};
  const float betas[2] = {0.9f, 0.1f};
  bk::ZeroOneNumbers numbers = {};
  bk::GroupStep meeting = {};
  const auto count = [&](bk::ZeroOneCall call, float lr) {
    group.lr = lr;
    bk::CountRates({call, /*groups=*/1, &state, &group, betas, &numbers, &meeting});
  };
  count(bk::ZeroOneCall::kLocal, 0.1f);
  count(bk::ZeroOneCall::kSend, 0.2f);
  // Here ranks exchange messages: sums of rates times moments.
  float message[2] = {0.15f, -0.3f};
  count(bk::ZeroOneCall::kMeet, 0.2f);
  const bk::ZeroOneMessage tensor = {message, /*size=*/2, /*group=*/0};
  bk::ZeroOneElementsRange(bk::ZeroOneReceiveOperation{&numbers}, tensor, 0, 2);
  std::printf("rates %.2f, moment %.2f %.2f\n", meeting.lr, message[0], message[1]);
}
