#include "brigade/kernels/zero_one_adam/zero_one_adam.h"

#include <limits>
#include <vector>

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
