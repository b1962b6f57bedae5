#include "brigade/collectives/bootstrap/fields.h"

#include <string>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;

TEST(FieldsTest, AListComesBackAsItWas) {
  const std::vector<std::string> fields = {"hello", "", "3:abc", std::string("\0\n", 2)};
  const auto unpacked = UnpackFields(PackFields(fields));
  ASSERT_OK(unpacked);
  EXPECT_EQ(*unpacked, fields);
}

TEST(FieldsTest, WhatIsNoListIsRefused) {
  for (const char* packed :
       {"5", "5:abc", "x:abc", "-1:abc", "3:abcd", "+3:abc", " 3:abc", "03:abc"}) {
    EXPECT_THAT(UnpackFields(packed),
                StatusIs(absl::StatusCode::kInvalidArgument, "not a message of this protocol"))
        << packed;
  }
  EXPECT_THAT(UnpackFields(""), StatusIs(absl::StatusCode::kInvalidArgument, "an empty message"));
}

TEST(FieldsTest, AnErrorOfAnotherProcessIsAnError) {
  EXPECT_EQ(ErrorOfCode(5, "why"), absl::NotFoundError("why"));
  for (const int code : {0, -1, 17, 1 << 30}) {
    EXPECT_EQ(ErrorOfCode(code, "\x1b"), absl::UnknownError("\\x1b")) << code;
  }
}

}  // namespace
}  // namespace brigade::collectives
