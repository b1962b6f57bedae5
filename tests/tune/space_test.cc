// What is tuned, and which configs that gives.

#include "brigade/tune/space.h"

#include <algorithm>
#include <string>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tune/setup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::tune {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const gpt::ModelOptions kModel = {.layers = 2, .heads = 4, .width = 32, .context = 32};

std::vector<std::string> NamesOf(const std::vector<Dimension>& dimensions) {
  std::vector<std::string> names;
  for (const Dimension each : dimensions) names.emplace_back(Name(each));
  return names;
}

TEST(SpaceTest, TunesWhatTheConfigLeavesOutOrToAuto) {
  ASSERT_OK_AND_ASSIGN(const TuningSetup setup, SetupOf(R"({
      "train_batch_size": 16, "train_micro_batch_size_per_gpu": "auto",
      "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
      "tensor_parallel": {"autotp_size": 1}, "sequence_parallel_size": 1,
      "pipeline": {"stages": "auto"}, "brigade": {"recompute": "none", "algorithm": null}})",
                                                        kModel, {.ranks = 4}));
  EXPECT_THAT(NamesOf(setup.tuned), ElementsAre("micro_batch", "bucket", "live_units", "algorithm",
                                                "offload", "pipeline"));
  EXPECT_EQ(setup.totals.batch, 16);
  EXPECT_EQ(setup.totals.stage, 2);
}

TEST(SpaceTest, FlagsSayMoreAndLess) {
  const std::string config = R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}})";
  ASSERT_OK_AND_ASSIGN(const TuningSetup setup,
                       SetupOf(config, kModel,
                               {.ranks = 2,
                                .tuned = {Dimension::kStage},
                                .kept = {Dimension::kOffload, Dimension::kBucket},
                                .given = {Dimension::kTensor}}));
  EXPECT_THAT(NamesOf(setup.tuned), ElementsAre("stage", "micro_batch", "live_units", "algorithm",
                                                "recompute", "context", "pipeline"));
}

TEST(SpaceTest, FastTunesStageAndMicroBatchAlone) {
  ASSERT_OK_AND_ASSIGN(
      const TuningSetup setup,
      SetupOf(R"({"train_batch_size": 8, "zero_optimization": {"reduce_bucket_size": "auto"},
                  "autotuning": {"enabled": true, "fast": true, "metric": "latency",
                                 "min_train_micro_batch_size_per_gpu": 2}})",
              kModel, {.ranks = 2}));
  EXPECT_THAT(NamesOf(setup.tuned), ElementsAre("stage", "micro_batch", "bucket"));
  EXPECT_EQ(setup.options.metric, train::TuningMetric::kLatency);
  EXPECT_EQ(setup.space.min_micro_batch, 2);
}

TEST(SpaceTest, TheBatchStaysWhateverTheGrid) {
  const Totals totals = {.ranks = 4, .batch = 12};
  Space space = {.tunes_micro_batch = true, .max_micro_batch = 1024};
  space.tensor = space.context = space.pipeline = {1, 2, 4};
  const Json config = Json::parse(R"({"train_batch_size": 12})");
  int points = 0;
  for (const Point& point : PointsOf(space, totals)) {
    const Json with = WithPoint(config, point, totals);
    const int64_t data = 4 / (*point.tensor * *point.context * *point.pipeline);
    EXPECT_EQ(with["train_batch_size"], 12);
    EXPECT_EQ(with["train_micro_batch_size_per_gpu"].get<int64_t>() *
                  with["gradient_accumulation_steps"].get<int64_t>() * data,
              12)
        << ToString(point);
    ++points;
  }
  // Data 4: divisors of 3. Data 2, three grids: of 6. Data 1, six grids: of 12.
  EXPECT_EQ(points, 2 + 3 * 4 + 6 * 6);
}

TEST(SpaceTest, LeavesOutWhatHasNoEffect) {
  Space space = {.stages = {0, 1, 2, 3},
                 .live_units = {1, 2},
                 .algorithms = {"direct", "ring"},
                 .offload = {{}, {.optimizer = "cpu"}, {.optimizer = "cpu", .parameters = "cpu"}}};
  // Of ranks that share: offload 1 + 2 (stage 0 is refused where the config is read), live units
  // from stage 2 on, weights of stage 3.
  const auto count = [&](int ranks) {
    return PointsOf(space, {.ranks = ranks, .batch = 4}).size();
  };
  EXPECT_EQ(count(2), 2 * (2 * (1 + 1) + 2 * (2 * 2) + 2));
  // Of one alone three: with what is offloaded.
  EXPECT_EQ(count(1), 3u);
}

TEST(SpaceTest, KeepsAllOtherKeysAndTheirOrder) {
  const std::string text = R"({"optimizer":{"type":"AdamW","params":{"lr":"auto"}},)"
                           R"("zero_optimization":{"overlap_comm":false,"stage":"auto"},)"
                           R"("train_batch_size":8,"bf16":{"enabled":true},)"
                           R"("brigade":{"dropout":0.1,"live_units":"auto"}})";
  ASSERT_OK_AND_ASSIGN(const Json config, ParseConfigText(text));
  const Totals totals = {.ranks = 2, .batch = 8};
  EXPECT_EQ(WithPoint(config, {.stage = 3, .micro_batch = 2, .live_units = 2}, totals).dump(),
            R"({"optimizer":{"type":"AdamW","params":{"lr":"auto"}},)"
            R"("zero_optimization":{"overlap_comm":false,"stage":3},)"
            R"("train_batch_size":8,"bf16":{"enabled":true},)"
            R"("brigade":{"dropout":0.1,"live_units":2},)"
            R"("train_micro_batch_size_per_gpu":2,"gradient_accumulation_steps":2})");
  // What is "auto" goes where it would be refused, or says nothing.
  EXPECT_EQ(WithPoint(config, {.stage = 0}, totals).dump(),
            R"({"optimizer":{"type":"AdamW","params":{"lr":"auto"}},)"
            R"("zero_optimization":{"overlap_comm":false,"stage":0},)"
            R"("train_batch_size":8,"bf16":{"enabled":true},)"
            R"("brigade":{"dropout":0.1}})");
}

TEST(SpaceTest, AConfigOfOnePointIsReadAsItIs) {
  const Json config = Json::parse(R"({"train_batch_size": 8, "pipeline": {"stages": 2}})");
  EXPECT_EQ(WithPoint(config, {}, {.ranks = 2, .batch = 8}), config);
}

TEST(SpaceTest, SaysWhatItNeeds) {
  EXPECT_THAT(SetupOf("{}", kModel, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--batch")));
  EXPECT_THAT(SetupOf("[1]", kModel, {}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(SetupOf("{", kModel, {}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(
      SetupOf(R"({"train_batch_size": 8, "autotuning": {"metric": "speed"}})", kModel, {}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("autotuning.metric is \"speed\"")));
  EXPECT_THAT(SetupOf(R"({"train_batch_size": 8, "pipeline": {"stages": 3}})", kModel, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pipeline 3")));
  EXPECT_THAT(SetupOf(R"({"train_batch_size": 1e300})", kModel, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2^53 texts or more")));
  EXPECT_THAT(SetupOf(R"({"train_micro_batch_size_per_gpu": 9e15,
                          "gradient_accumulation_steps": 9e15})",
                      kModel, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2^53 texts or more")));
  EXPECT_THAT(SetupOf(R"({"train_batch_size": -8})", kModel, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not given")));
  const std::vector<Dimension> grid = {Dimension::kTensor, Dimension::kContext,
                                       Dimension::kPipeline};
  EXPECT_THAT(SetupOf(R"({"train_batch_size": 7})", kModel, {.ranks = 2, .kept = grid}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("7 texts, which cannot be dealt to the data ranks of 2 ranks")));
  EXPECT_THAT(
      SetupOf(R"({"train_batch_size": 8,
                          "autotuning": {"min_train_micro_batch_size_per_gpu": 9}})",
              kModel, {.ranks = 2}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("micro-batches of 9 to 1024")));
  std::vector<Dimension> all(std::begin(kAllDimensions), std::end(kAllDimensions));
  EXPECT_THAT(SetupOf(R"({"train_batch_size": 8})", kModel, {.kept = all}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing is to be tuned")));
  EXPECT_THAT(ParseDimensions("stages"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("grid and all")));
  EXPECT_THAT(ParseModel("gpt3"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gpt2")));
  EXPECT_THAT(ParseModel("2x33x4x32"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SpaceTest, DivisorsOfALargeNumberAreFoundUpToTheLargestThatCounts) {
  EXPECT_THAT(DivisorsOf(12, 1, 1024), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(DivisorsOf(12, 2, 5), ElementsAre(2, 3, 4));
  EXPECT_THAT(DivisorsOf(49, 1, 49), ElementsAre(1, 7, 49));
  EXPECT_THAT(DivisorsOf(7, 2, 6), IsEmpty());
  EXPECT_THAT(DivisorsOf(int64_t{1} << 52, 1, 4), ElementsAre(1, 2, 4));
}

TEST(SpaceTest, AFilesBatchMayFollowFromItsOtherSizes) {
  ASSERT_OK_AND_ASSIGN(
      const TuningSetup setup,
      SetupOf(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})", kModel,
              {.ranks = 4}));
  EXPECT_EQ(setup.totals.batch, 24);
  // Of a grid of fewer data ranks the micro-batch stays, and the passes are more.
  const Json with = WithPoint(setup.config, {.tensor = 2}, setup.totals);
  EXPECT_EQ(with["train_batch_size"], 24);
  EXPECT_EQ(with["train_micro_batch_size_per_gpu"], 2);
  EXPECT_FALSE(with.contains("gradient_accumulation_steps"));
}

}  // namespace
}  // namespace brigade::tune
