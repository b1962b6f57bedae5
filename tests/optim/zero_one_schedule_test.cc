#include "brigade/optim/zero_one_schedule.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

// The steps, counted from 1, of the first `steps` that update second moments.
std::vector<int64_t> VarianceSteps(const ZeroOneSchedule& schedule, int64_t steps) {
  std::vector<int64_t> found;
  for (int64_t tried = 0; tried < steps; ++tried) {
    if (StepOf(schedule, tried) == ZeroOneStep::kVariance) found.push_back(tried + 1);
  }
  return found;
}

TEST(ZeroOneScheduleTest, SecondMomentsAreUpdated45TimesIn100Steps) {
  std::vector<int64_t> wanted;
  for (int64_t step = 1; step <= 16; ++step) wanted.push_back(step);
  for (int64_t step = 18; step <= 48; step += 2) wanted.push_back(step);
  for (int64_t step = 52; step <= 100; step += 4) wanted.push_back(step);
  ASSERT_EQ(wanted.size(), 45u);
  EXPECT_EQ(VarianceSteps({}, 100), wanted);
}

// By counting, as DeepSpeed does.
TEST(ZeroOneScheduleTest, IntervalsDoubleBehindEachScaler) {
  for (int64_t scaler = 1; scaler < 20; ++scaler) {
    std::vector<int64_t> wanted;
    int64_t interval = 1, counter = 0;
    for (int64_t step = 1; step <= 5000; ++step) {
      if (step % interval != 0) continue;
      wanted.push_back(step);
      if (++counter == scaler) counter = 0, interval *= 2;
    }
    EXPECT_EQ(VarianceSteps({.var_update_scaler = scaler}, 5000), wanted) << scaler;
  }
}

TEST(ZeroOneScheduleTest, RanksMeetInIntervalsThatDoubleUpToTheClipper) {
  for (const int64_t first : {1, 7, 16}) {
    for (const int64_t scaler : {1, 3, 10}) {
      for (const int64_t clipper : {1, 2, 6, 16}) {
        const ZeroOneSchedule schedule = {
            .var_freeze_step = first, .local_step_scaler = scaler, .local_step_clipper = clipper};
        int64_t interval = 1, counter = 0, meetings = 0;
        for (int64_t step = first + 1; step <= 1000; ++step) {
          const bool meets = step % interval == 0;
          EXPECT_EQ(StepOf(schedule, step - 1), meets ? ZeroOneStep::kMeeting : ZeroOneStep::kLocal)
              << first << ", " << scaler << ", " << clipper << ", step " << step;
          meetings += meets ? 1 : 0;
          if (++counter < scaler) continue;
          counter = 0;
          interval = std::min(2 * interval, clipper);
        }
        EXPECT_GE(meetings, (1000 - first) / clipper);
        EXPECT_NE(StepOf(schedule, first - 1), ZeroOneStep::kMeeting);
      }
    }
  }
}

// Where nobody says a step, it is a meeting of the last interval.
TEST(ZeroOneScheduleTest, TheLastStepThatThereIsMeets) {
  EXPECT_EQ(StepOf({}, std::numeric_limits<int64_t>::max()), ZeroOneStep::kMeeting);
}

}  // namespace
}  // namespace brigade::optim
