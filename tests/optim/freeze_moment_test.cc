#include "brigade/optim/freeze_moment.h"

#include <limits>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(FreezeMomentTest, WhatIsZeroBecomesInfinityAndNothingElseChanges) {
  auto context = device::Context::Create({.compute_threads = 1}).value();
  auto stream = context->CreateStream("stream").value();
  for (const int size : {0, 1, 31, 32, 33, 5000}) {
    std::vector<float> values(static_cast<size_t>(size));
    std::vector<float> wanted = values;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 0x1p-149f : static_cast<float>(i);
      wanted[i] = i % 3 == 0 ? kInfinity : values[i];
    }
    for (const char* turn : {"once", "twice"}) {
      ASSERT_OK(FreezeMoment(values.data(), size, *stream));
      ASSERT_OK(stream->Synchronize());
      EXPECT_EQ(values, wanted) << turn;
    }
  }
}

TEST(FreezeMomentTest, BadArgumentsAreNamed) {
  using ::brigade::testing::StatusIs;
  using ::testing::HasSubstr;
  auto context = device::Context::Create({.compute_threads = 1}).value();
  auto stream = context->CreateStream("stream").value();
  EXPECT_THAT(FreezeMoment(nullptr, 3, *stream),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("second_moment")));
  float value = 0;
  EXPECT_THAT(FreezeMoment(&value, -1, *stream),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
}

}  // namespace
}  // namespace brigade::optim
