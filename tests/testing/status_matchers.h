#ifndef BRIGADE_TESTS_TESTING_STATUS_MATCHERS_H_
#define BRIGADE_TESTS_TESTING_STATUS_MATCHERS_H_

#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// Matchers for absl::Status and absl::StatusOr, as newer Abseil has them.
//
//   ASSERT_OK(stream->Synchronize());
//   EXPECT_OK(stream->Record(*event));
//   EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("eps")));
//   ASSERT_OK_AND_ASSIGN(auto context, Context::Create(options));

namespace brigade::testing {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }

template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& status) {
  return status.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << "which is " << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}

// The code, and a matcher for the message.
MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  const absl::Status& status = GetStatus(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code && ::testing::Matches(message)(std::string(status.message()));
}

MATCHER_P(StatusIs, code, "has code " + absl::StatusCodeToString(code)) {
  *result_listener << "which is " << GetStatus(arg).ToString();
  return GetStatus(arg).code() == code;
}

}  // namespace brigade::testing

#define ASSERT_OK(expression) ASSERT_THAT(expression, ::brigade::testing::IsOk())
#define EXPECT_OK(expression) EXPECT_THAT(expression, ::brigade::testing::IsOk())

#define BRIGADE_ASSERT_OK_AND_ASSIGN(status_or, target, expression) \
  auto status_or = (expression);                                    \
  ASSERT_OK(status_or);                                             \
  target = *std::move(status_or)

// `target` must hold no comma outside of parentheses.
#define ASSERT_OK_AND_ASSIGN(target, expression)                                          \
  BRIGADE_ASSERT_OK_AND_ASSIGN(BRIGADE_CONCATENATE(status_or_at_line_, __LINE__), target, \
                               expression)

#endif  // BRIGADE_TESTS_TESTING_STATUS_MATCHERS_H_
