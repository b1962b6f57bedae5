#include "brigade/device/all_errors.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

TEST(AllErrorsTest, HasTheMessagesOfAllAndTheCodeOfTheFirst) {
  const absl::Status ok, full = absl::ResourceExhaustedError("disk is full"),
                         away = absl::UnavailableError("nobody reads");
  EXPECT_TRUE(AllErrors({}).ok());
  EXPECT_TRUE(AllErrors({ok, ok}).ok());
  EXPECT_EQ(AllErrors({ok, full, ok}), full);
  EXPECT_EQ(AllErrors({ok, full, ok, away}),
            absl::ResourceExhaustedError("disk is full; nobody reads"));
  EXPECT_EQ(AllErrors({away, full}), absl::UnavailableError("nobody reads; disk is full"));
}

}  // namespace
}  // namespace brigade::device
