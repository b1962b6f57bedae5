#include "brigade/zero/step.h"

#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::BFloat16;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The units of ToyModel, and one of the parameters of each.
constexpr int kEmbedding = 0, kBlock = 1;
constexpr int kTokens = 0, kBlockWeight = 2;

ZeroOptions Stage3() {
  ZeroOptions options;
  options.stage = 3;
  return options;
}

// A pass that ends early, with an error of its own work.
absl::Status FailingPass(ZeroOptimizer& zero) {
  UnitScope unit(zero, kBlock, Pass::kForward);
  EXPECT_NE(unit.weights(kBlockWeight), nullptr);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  return absl::UnknownError("the pass fails");
}

TEST(UnitScopeTest, AnEarlyReturnReleases) {
  OnThreads({.size = 2}, [](Rank& self) {
    auto zero = CreateZero(ToyModel(), Stage3(), self).value();
    EXPECT_THAT(FailingPass(*zero), StatusIs(absl::StatusCode::kUnknown));
    EXPECT_THAT(
        zero->Weights(kBlockWeight).status(),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is read while no unit")));
    // The unit can be acquired again, and the state is between steps.
    EXPECT_THAT(FailingPass(*zero), StatusIs(absl::StatusCode::kUnknown));
    EXPECT_OK(Capture(*zero, self).status());
  });
}

TEST(UnitScopeTest, ReleaseComesOnceAndBeforeTheEndIfAsked) {
  OnThreads({.size = 2}, [](Rank& self) {
    auto zero = CreateZero(ToyModel(), Stage3(), self).value();
    UnitScope unit(*zero, kBlock, Pass::kForward);
    EXPECT_OK(unit.Release());
    EXPECT_OK(unit.Release());
    UnitScope again(*zero, kBlock, Pass::kForward);
    EXPECT_OK(again.status());
  });
}

TEST(UnitScopeTest, TheFirstErrorStaysAndLookUpsAfterItGiveNull) {
  OnThreads({.size = 2}, [](Rank& self) {
    auto zero = CreateZero(ToyModel(), Stage3(), self).value();
    UnitScope unit(*zero, kBlock, Pass::kBackward);
    EXPECT_EQ(unit.gradient(kTokens).data, nullptr);
    EXPECT_EQ(unit.weights(kBlockWeight), nullptr);
    const auto says = StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("\"wte\""), HasSubstr("does not use it")));
    EXPECT_THAT(unit.status(), says);
    EXPECT_THAT(unit.Release(), says);

    // A scope that has acquired nothing releases nothing.
    UnitScope first(*zero, kEmbedding, Pass::kForward);
    {
      UnitScope second(*zero, kEmbedding, Pass::kForward);
      EXPECT_THAT(second.status(), StatusIs(absl::StatusCode::kFailedPrecondition));
      EXPECT_EQ(second.weights(kTokens), nullptr);
    }
    EXPECT_NE(first.weights(kTokens), nullptr);
  });
}

TEST(UnitScopeTest, WeightsReadAsAnotherTypeAreAnError) {
  OnThreads({.size = 2}, [](Rank& self) {
    auto zero = CreateZero(ToyModel(), Stage3(), self).value();
    UnitScope unit(*zero, kBlock, Pass::kForward);
    EXPECT_EQ(unit.weights<BFloat16>(kBlockWeight), unit.weights(kBlockWeight));
    EXPECT_EQ(unit.weights<float>(kBlockWeight), nullptr);
    EXPECT_THAT(unit.status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("parameter 2 is read as fp32, its weights are bf16")));
  });
}

}  // namespace
}  // namespace brigade::zero
