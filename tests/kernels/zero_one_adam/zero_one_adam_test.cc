#include "brigade/kernels/zero_one_adam/zero_one_adam.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "brigade/kernels/zero_one_adam/zero_one_adam_parameters.h"
#include "brigade/tests/kernels/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ZeroOneAdamTest, TheMaskClearsWhatHasNoSecondMoment) {
  for (const int threads : {1, 4}) {
    auto context = device::Context::Create({.compute_threads = threads}).value();
    auto stream = context->CreateStream("stream").value();
    std::vector<GuardedArray<float>> moments, gradients;
    std::vector<std::vector<float>> wanted;
    for (const int64_t size : {0, 1, 31, 33, 5000, 70001}) {
      const int64_t offset = size % 7;
      GuardedArray<float>& moment = moments.emplace_back(size, offset);
      GuardedArray<float>& gradient = gradients.emplace_back(size, offset + 1);
      std::vector<float>& result = wanted.emplace_back();
      for (int64_t i = 0; i < size; ++i) {
        moment[i] = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 0x1p-149f : 2.0f;
        if (i % 6 == 3) moment[i] = -0.0f;
        gradient[i] =
            i % 11 == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(i) - 7.5f;
        result.push_back(i % 3 == 0 ? 0.0f : gradient[i]);
      }
    }
    std::vector<ZeroOneMask> segments;
    for (size_t s = 0; s < moments.size(); ++s) {
      segments.push_back({moments[s].data(), gradients[s].data(), moments[s].size()});
    }
    ASSERT_OK(ZeroOneAdamMask(segments, *stream));
    ASSERT_OK(stream->Synchronize());
    for (size_t s = 0; s < moments.size(); ++s) EXPECT_TRUE(Matches(gradients[s], wanted[s])) << s;
  }
}

TEST(ZeroOneAdamTest, AMessageIsMultipliedByItsGroupsNumber) {
  auto context = device::Context::Create({.compute_threads = 2}).value();
  auto stream = context->CreateStream("stream").value();
  std::vector<ZeroOneNumbers> numbers(2);
  numbers[0].inverse = 3.0f, numbers[1].inverse = 0.1f;
  std::vector<GuardedArray<float>> messages;
  std::vector<std::vector<float>> wanted;
  std::vector<ZeroOneMessage> segments;
  for (const int64_t size : {0, 1, 33, 9000}) {
    GuardedArray<float>& message = messages.emplace_back(size, size % 5);
    const auto group = static_cast<int32_t>(messages.size() % 2);
    std::vector<float>& result = wanted.emplace_back();
    for (int64_t i = 0; i < size; ++i) {
      message[i] = static_cast<float>(i) - 3.75f;
      result.push_back(message[i] * (group == 0 ? 3.0f : 0.1f));
    }
    segments.push_back({nullptr, size, group});
  }
  for (size_t s = 0; s < messages.size(); ++s) segments[s].message = messages[s].data();
  ASSERT_OK(ZeroOneAdamReceive(segments, numbers, *stream));
  ASSERT_OK(stream->Synchronize());
  for (size_t s = 0; s < messages.size(); ++s) EXPECT_TRUE(Matches(messages[s], wanted[s])) << s;
  segments[1].group = 2;
  EXPECT_THAT(ZeroOneAdamReceive(segments, numbers, *stream),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("group of segment 1 is 2, there are 2")));
  segments[1].group = -1;
  EXPECT_THAT(ZeroOneAdamReceive(segments, numbers, *stream),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is -1")));
}

TEST(ZeroOneAdamTest, ASkippedStepTakesNothing) {
  auto context = device::Context::Create({.compute_threads = 2}).value();
  auto stream = context->CreateStream("stream").value();
  for (const int32_t skip : {0, 1}) {
    StepState state = {};
    state.skip = skip;
    std::vector<float> source(6000, 2.5f), target(6000, 1.0f), cleared(70, 7.0f);
    const auto size = static_cast<int64_t>(source.size());
    ASSERT_OK(ZeroOneAdamTake({{source.data(), target.data(), size}, {nullptr, cleared.data(), 69}},
                              &state, *stream));
    ASSERT_OK(stream->Synchronize());
    EXPECT_EQ(target, std::vector<float>(6000, skip == 0 ? 2.5f : 1.0f));
    std::vector<float> wanted(70, skip == 0 ? 0.0f : 7.0f);
    wanted[69] = 7.0f;
    EXPECT_EQ(cleared, wanted);
    EXPECT_THAT(ZeroOneAdamTake({{source.data(), nullptr, size}}, &state, *stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("target")));
    EXPECT_THAT(ZeroOneAdamTake({{source.data(), target.data(), size}}, nullptr, *stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("state")));
  }
}

// Of two groups: three steps alone, of which one is skipped, a meeting that is skipped, and one
// that is not.
TEST(ZeroOneAdamTest, RatesAreCountedFromMeetingToMeeting) {
  auto context = device::Context::Create({.compute_threads = 1}).value();
  auto stream = context->CreateStream("stream").value();
  StepState state = {};
  state.step = 1;
  state.grad_multiplier = 0.5f;
  // A step that is skipped does not fill them.
  std::vector<GroupStep> steps(2), meeting(2);
  std::vector<ZeroOneNumbers> numbers(2);
  const std::vector<float> betas = {0.9f, 0.5f, 0.1f, 0.5f};
  const auto call = [&](ZeroOneCall kind, int32_t skip, float lr) {
    state.skip = skip;
    steps[0].lr = skip == 0 ? lr : NAN, steps[1].lr = skip == 0 ? 0.0f : NAN;
    for (GroupStep& step : steps) step.inv_sqrt_correction = skip == 0 ? 1.0f : 0.0f;
    EXPECT_OK(ZeroOneAdamRates(
        {kind, 2, &state, steps.data(), betas.data(), numbers.data(), meeting.data()}, *stream));
    EXPECT_OK(stream->Synchronize());
  };
  call(ZeroOneCall::kLocal, 0, 0.25f);
  EXPECT_EQ(numbers[0].moved, 0.25f);
  call(ZeroOneCall::kLocal, 1, 0);
  EXPECT_EQ(numbers[0].moved, 0.0f);
  call(ZeroOneCall::kLocal, 0, 0.5f);
  EXPECT_EQ(numbers[0].rates, 0.75f);
  EXPECT_EQ(numbers[1].rates, 0.0f);
  call(ZeroOneCall::kMeet, 1, 0);
  EXPECT_EQ(numbers[0].rates, 0.75f);
  call(ZeroOneCall::kSend, 0, 0.25f);
  EXPECT_EQ(numbers[0].of_moment, 0.25f * 0.9f);
  EXPECT_EQ(numbers[0].of_gradient, 0.25f * 0.1f * 0.5f);
  EXPECT_EQ(numbers[0].rates, 0.75f);
  call(ZeroOneCall::kMeet, 0, 0.25f);
  EXPECT_EQ(numbers[0].inverse, 1.0f);
  EXPECT_EQ(numbers[1].inverse, 0.0f);
  EXPECT_EQ(meeting[0].lr, 1.0f);
  EXPECT_EQ(meeting[0].step_size, 1.0f);
  EXPECT_EQ(meeting[0].inv_sqrt_correction, 1.0f);
  EXPECT_EQ(meeting[1].lr, 0.0f);
  EXPECT_EQ(numbers[0].rates, 0.0f);
  EXPECT_EQ(state.grad_multiplier, 0.5f);
  // Between steps there is nothing now, and then something again.
  call(ZeroOneCall::kSave, 0, 9.0f);
  EXPECT_EQ(state.skip, 1);
  EXPECT_EQ(state.grad_multiplier, 1.0f);
  call(ZeroOneCall::kLocal, 0, 0.25f);
  call(ZeroOneCall::kLocal, 1, 0);
  call(ZeroOneCall::kSave, 1, 0);
  EXPECT_EQ(state.skip, 0);
  EXPECT_EQ(meeting[0].lr, 0.25f);
  EXPECT_EQ(numbers[0].inverse, 4.0f);
  EXPECT_EQ(numbers[0].rates, 0.0f);
  EXPECT_THAT(ZeroOneAdamRates({ZeroOneCall::kLocal, 2, &state, steps.data(), betas.data(), nullptr,
                                meeting.data()},
                               *stream),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("numbers")));
}

// No call of a step that nobody has filled does something.
TEST(ZeroOneAdamTest, AStepThatIsNotFilledIsAnError) {
  auto context = device::Context::Create({.compute_threads = 1}).value();
  const std::vector<float> betas = {0.9f, 0.1f};
  for (const ZeroOneCall call : {ZeroOneCall::kSend, ZeroOneCall::kMeet, ZeroOneCall::kLocal}) {
    ZeroOneNumbers numbers = {0.5f, 2.0f, 3.0f, 4.0f, 5.0f};
    StepState state = {};
    GroupStep step = {0.1f, 0.1f, 1.0f}, meeting = {7.0f, 7.0f, 7.0f};
    const auto fails = [&](const char* text) {
      auto stream = context->CreateStream("stream").value();
      EXPECT_OK(
          ZeroOneAdamRates({call, 1, &state, &step, betas.data(), &numbers, &meeting}, *stream));
      EXPECT_THAT(stream->Synchronize(),
                  StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(text)));
      EXPECT_EQ(numbers.rates, 0.5f);
      EXPECT_EQ(numbers.of_moment, 2.0f);
      EXPECT_EQ(numbers.inverse, 4.0f);
      EXPECT_EQ(numbers.moved, 5.0f);
      EXPECT_EQ(meeting.lr, 7.0f);
    };
    fails("state was not filled");
    state.step = 1;
    step = {};
    fails("group_steps was not filled");
  }
}

TEST(ZeroOneAdamTest, AStepOfTheHostsCountsAsOneInMemory) {
  const AdamGroup groups[] = {{.beta1 = 0.9}, {.beta1 = 0.35}};
  float betas[4];
  FillZeroOneBetas(groups, 2, betas);
  EXPECT_EQ(betas[3], static_cast<float>(1.0 - 0.35));
  const float lr[] = {0.03f, 0.7f};
  StepState state = {};
  state.step = 5;
  state.grad_multiplier = 0.3f;
  const GroupStep steps[] = {{lr[0], 0.0f, 1.0f}, {lr[1], 0.0f, 1.0f}};
  const OneStep step = {5, lr, 0.3f};
  ZeroOneNumbers of_memory[2] = {}, of_host[2] = {};
  GroupStep meeting[2] = {}, other_meeting[2] = {};
  for (const ZeroOneCall call : {ZeroOneCall::kLocal, ZeroOneCall::kSend, ZeroOneCall::kMeet}) {
    ASSERT_EQ(CountRates({call, 2, &state, steps, betas, of_memory, meeting}), StepError::kNone);
    ASSERT_EQ(CountRates(MakeZeroOneRates(call, 2, step, betas, of_host, other_meeting)),
              StepError::kNone);
    EXPECT_EQ(std::memcmp(of_memory, of_host, sizeof(of_host)), 0);
    EXPECT_EQ(std::memcmp(meeting, other_meeting, sizeof(meeting)), 0);
  }
  EXPECT_GT(meeting[1].lr, 1.3f);
  const auto error = [&](ZeroOneCall call, int32_t count, const OneStep& of) {
    return CountRates(MakeZeroOneRates(call, count, of, betas, of_host, other_meeting));
  };
  EXPECT_EQ(error(ZeroOneCall::kSave, 2, step), StepError::kNoStep);
  EXPECT_EQ(error(ZeroOneCall::kMeet, 2, {0, lr, 1.0f}), StepError::kNoStep);
  EXPECT_EQ(error(ZeroOneCall::kMeet, 2, {1, nullptr, 1.0f}), StepError::kNoStep);
  EXPECT_EQ(error(ZeroOneCall::kMeet, kMaxOneStepGroups + 1, step), StepError::kNoStep);
}

TEST(ZeroOneAdamTest, BadArgumentsAreNamed) {
  auto context = device::Context::Create({.compute_threads = 1}).value();
  auto stream = context->CreateStream("stream").value();
  std::vector<float> moment(4), gradient(4);
  const auto refuses = [&](const ZeroOneMask& segment, const char* text) {
    EXPECT_THAT(ZeroOneAdamMask({segment}, *stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refuses({nullptr, gradient.data(), 4}, "second_moment");
  refuses({moment.data(), nullptr, 4}, "gradient");
  refuses({moment.data(), gradient.data(), -1}, "-1");
  refuses({gradient.data(), gradient.data() + 1, 3}, "overlap");
}

}  // namespace
}  // namespace brigade::kernels
