#include "brigade/zero/plan/batch_sizes.h"

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(BatchSizesTest, TakesWhatMultipliesAndRefusesWhatDoesNot) {
  EXPECT_OK(CompleteBatchSizes({32, 16, 1}, 2).status());
  EXPECT_OK(CompleteBatchSizes({32, 8, 2}, 2).status());
  EXPECT_THAT(CompleteBatchSizes({33, 17, 2}, 2).status(),
              StatusIs(kInvalid, HasSubstr("train_batch_size 33, train_micro_batch_size_per_gpu "
                                           "17, gradient_accumulation_steps 2 on 2 ranks")));
  EXPECT_THAT(CompleteBatchSizes({32, 18, 1}, 2).status(), StatusIs(kInvalid));
}

TEST(BatchSizesTest, CompletesWhatIsLeftOut) {
  const BatchSizes wanted = {32, 8, 2};
  EXPECT_EQ(CompleteBatchSizes({32, 8, 0}, 2).value(), wanted);
  EXPECT_EQ(CompleteBatchSizes({32, 0, 2}, 2).value(), wanted);
  EXPECT_EQ(CompleteBatchSizes({0, 8, 2}, 2).value(), wanted);
  EXPECT_EQ(CompleteBatchSizes({32, 0, 0}, 2).value(), (BatchSizes{32, 16, 1}));
  EXPECT_EQ(CompleteBatchSizes({0, 16, 0}, 2).value(), (BatchSizes{32, 16, 1}));
  EXPECT_THAT(CompleteBatchSizes({0, 0, 2}, 2).status(),
              StatusIs(kInvalid, HasSubstr("must be given")));
  EXPECT_THAT(CompleteBatchSizes({33, 8, 0}, 2).status(),
              StatusIs(kInvalid, ::testing::StartsWith("train_batch_size 33, "
                                                       "train_micro_batch_size_per_gpu 8 on 2 "
                                                       "ranks: the batch is not")));
  EXPECT_THAT(CompleteBatchSizes({1, 0, 0}, 2).status(), StatusIs(kInvalid));
  EXPECT_THAT(CompleteBatchSizes({8, 0, 0}, 0).status(), StatusIs(kInvalid, HasSubstr("0 ranks")));
  EXPECT_THAT(CompleteBatchSizes({-32, 8, -2}, 2).status(),
              StatusIs(kInvalid, HasSubstr("negative")));
  EXPECT_THAT(CompleteBatchSizes({0, int64_t{1} << 40, int64_t{1} << 40}, 2).status(),
              StatusIs(kInvalid, HasSubstr("too large")));
  EXPECT_THAT(CompleteBatchSizes({int64_t{1} << 40, 0, 0}, 2).status(),
              StatusIs(kInvalid, HasSubstr("too large")));
}

}  // namespace
}  // namespace brigade::zero
