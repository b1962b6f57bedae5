#include "brigade/device/status_macros.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  if (value < 0) return absl::OutOfRangeError("negative");
  return std::make_unique<int>(value);
}

TEST(AssignOrReturnTest, DeclaresOrAssignsTheValue) {
  std::unique_ptr<int> lvalue;
  const auto sum = [&]() -> absl::StatusOr<int> {
    BRIGADE_ASSIGN_OR_RETURN(auto declared, Box(1));
    BRIGADE_ASSIGN_OR_RETURN(const std::unique_ptr<int> typed, Box(2));
    BRIGADE_ASSIGN_OR_RETURN(lvalue, Box(4));
    BRIGADE_ASSIGN_OR_RETURN(*lvalue, absl::StatusOr<int>(8));
    return *declared + *typed + *lvalue;
  };
  EXPECT_EQ(sum().value(), 11);
}

TEST(AssignOrReturnTest, ReturnsTheErrorAndLeavesTheTargetAlone) {
  auto target = std::make_unique<int>(5);
  const auto assign = [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(target, Box(-1));
    return absl::OkStatus();
  };
  EXPECT_THAT(assign(), StatusIs(absl::StatusCode::kOutOfRange, "negative"));
  EXPECT_EQ(*target, 5);
}

TEST(AssignOrReturnTest, EvaluatesTheExpressionOnce) {
  int calls = 0;
  const auto assign = [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const int value, absl::StatusOr<int>(++calls));
    return value == 1 ? absl::OkStatus() : absl::InternalError("evaluated twice");
  };
  EXPECT_OK(assign());
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace brigade::device
