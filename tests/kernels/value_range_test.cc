#include "brigade/kernels/value_range.h"

#include <limits>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

auto Invalid(const char* message) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
}

TEST(ValueRangeTest, SaysWhatTheRangeIs) {
  EXPECT_OK(CheckInRange("op", "beta", 2, 0.5, kBelowOne));
  EXPECT_THAT(CheckInRange("op", "beta", 2, 1.0, kBelowOne),
              Invalid("op: beta of group 2 is 1, must be in [0, 1)"));
  EXPECT_THAT(CheckInRange("op", "eps", -1, 0.0, kPositive),
              Invalid("op: eps is 0, must be positive"));
  EXPECT_THAT(CheckInRange("op", "eps", -1, std::numeric_limits<double>::quiet_NaN(), kNonNegative),
              Invalid("op: eps is nan"));
}

}  // namespace
}  // namespace brigade::kernels
