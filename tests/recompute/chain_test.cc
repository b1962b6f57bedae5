#include "brigade/recompute/chain.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::recompute {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Chain Valid() {
  const SaveOption all = {.name = "all",
                          .saved_bytes = 8,
                          .forward_transient_bytes = 1,
                          .backward_transient_bytes = 2,
                          .backward_time = 2};
  const Stage stage = {.name = "block",
                       .forward_time = 1,
                       .output_bytes = 4,
                       .gradient_bytes = 4,
                       .transient_bytes = 3,
                       .options = {all, all}};
  return {.stages = {stage, stage}};
}

TEST(ChainTest, TakesSizesAndTimesOfZero) {
  EXPECT_OK(Validate(Valid()));
  EXPECT_OK(Validate({.stages = {{.options = {{}}}}}));
}

TEST(ChainTest, RefusesChainsWithoutStagesAndStagesWithoutOptions) {
  EXPECT_THAT(Validate({}), StatusIs(kInvalid, "a chain has no stages"));
  Chain chain = Valid();
  chain.stages[1].options.clear();
  EXPECT_THAT(Validate(chain), StatusIs(kInvalid, "stage 1 (\"block\"): it has no options"));
}

TEST(ChainTest, RefusesMoreStagesThanPlannersTake) {
  Chain chain = {.stages = {kMaxStages, {.options = {{}}}}};
  EXPECT_OK(Validate(chain));
  chain.stages.push_back(chain.stages.front());
  EXPECT_THAT(Validate(chain),
              StatusIs(kInvalid, HasSubstr("a chain has 1025 stages, more than 1024")));
}

TEST(ChainTest, NamesTheTimeThatIsNone) {
  for (const double time : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    Chain chain = Valid();
    chain.stages[1].forward_time = time;
    EXPECT_THAT(Validate(chain), StatusIs(kInvalid, HasSubstr("stage 1 (\"block\"): forward_time")))
        << time;
    chain = Valid();
    chain.stages[0].options[1].backward_time = time;
    EXPECT_THAT(
        Validate(chain),
        StatusIs(kInvalid, HasSubstr("stage 0 (\"block\") option 1 (\"all\"): backward_time")))
        << time;
  }
}

TEST(ChainTest, NamesTheSizeThatIsNegative) {
  for (int64_t Stage::*size :
       {&Stage::output_bytes, &Stage::gradient_bytes, &Stage::transient_bytes}) {
    Chain chain = Valid();
    chain.stages[1].*size = -1;
    EXPECT_THAT(Validate(chain),
                StatusIs(kInvalid, AllOf(HasSubstr("stage 1"), HasSubstr("is negative: -1"))));
  }
  for (int64_t SaveOption::*size : {&SaveOption::saved_bytes, &SaveOption::forward_transient_bytes,
                                    &SaveOption::backward_transient_bytes}) {
    Chain chain = Valid();
    chain.stages[1].options[1].*size = -1;
    EXPECT_THAT(Validate(chain), StatusIs(kInvalid, AllOf(HasSubstr("stage 1 (\"block\") option 1"),
                                                          HasSubstr("is negative: -1"))));
  }
}

TEST(ChainTest, RefusesSizesWhoseSumCouldOverflow) {
  Chain chain = Valid();
  chain.stages[1].options[0].saved_bytes = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Validate(chain),
              StatusIs(kInvalid, HasSubstr("the sizes of the chain add up to more than")));
  chain.stages[1].options[0].saved_bytes = kMaxChainBytes / 2;
  EXPECT_OK(Validate(chain));
  chain.stages[1].options[1].saved_bytes = kMaxChainBytes / 2;
  EXPECT_THAT(Validate(chain),
              StatusIs(kInvalid, HasSubstr("option 1 (\"all\"): with saved_bytes")));
}

TEST(ChainTest, RefusesASavedSetThatCannotHoldTheOutput) {
  Chain chain = Valid();
  chain.stages[0].options[1].saved_bytes = 3;
  EXPECT_THAT(
      Validate(chain),
      StatusIs(kInvalid, HasSubstr("option 1 (\"all\"): saved_bytes of 3 cannot hold the output")));
}

TEST(ChainTest, RefusesABackwardPassWithoutRoomForTheGradientOfItsInput) {
  Chain chain = Valid();
  // 8 saved, 4 of its gradient and 2 transient ones.
  chain.stages[0].gradient_bytes = 14;
  EXPECT_OK(Validate(chain));
  chain.stages[0].gradient_bytes = 15;
  EXPECT_THAT(Validate(chain),
              StatusIs(kInvalid, AllOf(HasSubstr("stage 1"),
                                       HasSubstr("no room for the gradient of the stage's "
                                                 "input, 15 bytes"))));
}

}  // namespace
}  // namespace brigade::recompute
