#include "brigade/optim/zero_one_schedule.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

// The steps, counted from 1, of the first `steps` that update second moments.
std::vector<int64_t> VarianceSteps(const ZeroOneSchedule& schedule, int64_t steps) {
  std::vector<int64_t> found;
  for (int64_t tried = 0; tried < steps; ++tried) {
    if (UpdatesVariance(schedule, tried)) found.push_back(tried + 1);
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

}  // namespace
}  // namespace brigade::optim
