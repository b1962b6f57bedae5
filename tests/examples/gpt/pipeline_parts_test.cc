#include "brigade/examples/gpt/pipeline_parts.h"

#include <numeric>
#include <string>
#include <vector>

#include "brigade/examples/gpt/job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using By = parallel::PartitionChoice::By;
using parallel::PipelineShape;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

PipelineShape Pipeline(const char* schedule, int stages, int micro_batches = 12) {
  return {parallel::ParseSchedule(schedule).value(), stages, micro_batches};
}

std::vector<int> Parts(const PassShape& shape, const PipelineShape& pipeline, const char* partition,
                       const PassCosts& costs = {}) {
  return PartsOf(shape, pipeline, parallel::ParsePartition(partition).value(), costs, nullptr)
      .value();
}

// The trainer's default, of which the facts are known: in units of the head the operations are
// 0 7 7 7 7 1.
TEST(PipelinePartsTest, TheExampleIsCutByOperations) {
  const PassShape shape = {.batch = 4};
  const std::vector<double> weights = StageWeights(shape, By::kFlops, {});
  ASSERT_EQ(weights.size(), 6u);
  EXPECT_EQ(weights[0], 0);
  for (int block = 1; block <= 4; ++block) {
    EXPECT_NEAR(weights[static_cast<size_t>(block)] / weights[5], 7, 0.5);
  }
  EXPECT_THAT(Parts(shape, Pipeline("1f1b", 1), "flops"), ElementsAre(0, 6));
  EXPECT_THAT(Parts(shape, Pipeline("1f1b", 2), "flops"), ElementsAre(0, 3, 6));
  EXPECT_THAT(Parts(shape, Pipeline("1f1b", 3), "flops"), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(Parts(shape, Pipeline("1f1b", 4), "flops"), ElementsAre(0, 2, 3, 4, 6));
  EXPECT_THAT(Parts(shape, Pipeline("gpipe", 6), "flops"), ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

// Width 4: blocks have 12 * 16 + 13 * 4 = 244 parameters, the embedding 256 * 4 + 8 * 4 = 1056, the
// head its norm and tokens: 8 + 1024 = 1032.
TEST(PipelinePartsTest, ParametersCountTheTokensAtBothEnds) {
  const PassShape shape = {.model = {.layers = 4, .heads = 2, .width = 4, .context = 8}};
  const std::vector<double> weights = StageWeights(shape, By::kParameters, {});
  EXPECT_THAT(weights, ElementsAre(1056, 244, 244, 244, 244, 1032));
  EXPECT_EQ(std::accumulate(weights.begin(), weights.end(), -1024.0), ParameterCount(shape.model));
  EXPECT_THAT(Parts(shape, Pipeline("1f1b", 2), "parameters"), ElementsAre(0, 3, 6));
  EXPECT_THAT(Parts(shape, Pipeline("1f1b", 3), "parameters"), ElementsAre(0, 1, 5, 6));
  // Ranks that share the matrices have half of these, and cut alike.
  PassShape shared = shape;
  shared.model.tensor_shards = shared.tensor_ranks = 2;
  const std::vector<double> halves = StageWeights(shared, By::kParameters, {});
  EXPECT_EQ(halves[0], 512 + 32);
  EXPECT_EQ(halves[5], 512 + 8);
  shared.tensor_rank = 1;
  EXPECT_EQ(StageWeights(shared, By::kParameters, {}), halves);
}

TEST(PipelinePartsTest, TimeIsThatOfBothPasses) {
  const PassShape shape = {.model = {.layers = 3}};
  const PassCosts costs = {.embedding = {1, 2}, .block = {1, 3}, .head = {4, 6}, .qkv = 100};
  EXPECT_THAT(StageWeights(shape, By::kTime, costs), ElementsAre(3, 4, 4, 4, 10));
  EXPECT_THAT(Parts(shape, Pipeline("1f1b", 2), "time", costs), ElementsAre(0, 3, 5));
  EXPECT_THAT(Parts(shape, Pipeline("1f1b", 3), "time", costs), ElementsAre(0, 2, 4, 5));
}

TEST(PipelinePartsTest, BoundariesAreTakenAsGivenIfTheyAreSome) {
  const PassShape shape = {};
  EXPECT_THAT(Parts(shape, Pipeline("1f1b", 2), "0,1,6"), ElementsAre(0, 1, 6));
  EXPECT_THAT(
      PartsOf(shape, Pipeline("1f1b", 2), parallel::ParsePartition("0,1,5").value(), {}, nullptr)
          .status(),
      StatusIs(kInvalid,
               "partition: boundaries 0,1,5; for 2 parts of 6 layers there are 3 ascending ones "
               "from 0 to 6"));
}

std::vector<std::vector<int>> Chunks(const char* schedule, int stages,
                                     const std::vector<int>& boundaries) {
  std::vector<std::vector<int>> all;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int>& ends = all.emplace_back();
    for (const StageRange& chunk : ChunksOf(Pipeline(schedule, stages), boundaries, stage)) {
      ends.push_back(chunk.first);
      ends.push_back(chunk.end);
    }
  }
  return all;
}

TEST(PipelinePartsTest, EachStageHasAPartForEachChunk) {
  const std::vector<int> boundaries = {0, 1, 3, 4, 6};
  EXPECT_THAT(Chunks("1f1b", 1, {0, 6}), ElementsAre(ElementsAre(0, 6)));
  EXPECT_THAT(Chunks("1f1b", 4, boundaries), ElementsAre(ElementsAre(0, 1), ElementsAre(1, 3),
                                                         ElementsAre(3, 4), ElementsAre(4, 6)));
  EXPECT_THAT(Chunks("interleaved:2", 2, boundaries),
              ElementsAre(ElementsAre(0, 1, 3, 4), ElementsAre(1, 3, 4, 6)));
  // There and back.
  EXPECT_THAT(Chunks("zb-v", 2, boundaries),
              ElementsAre(ElementsAre(0, 1, 4, 6), ElementsAre(1, 3, 3, 4)));
}

Job CreateJob(const std::string& keys, int ranks) {
  Job job;
  job.model = {.layers = 4, .heads = 2, .width = 4, .context = 8};
  job.config = train::ParseConfig(R"({"train_micro_batch_size_per_gpu": 1,
                               "gradient_accumulation_steps": 4, "optimizer": {"type": "Adam"},)" +
                                      keys + "}",
                                  ranks)
                   .value();
  return job;
}

TEST(PipelinePartsTest, APartMustFitIntoTheMemoryOfItsStage) {
  Job job = CreateJob(R"("fp16": {"enabled": true}, "pipeline": {"stages": 2})", 2);
  const PassShape shape = ShapeOf(job);
  const PipelineShape pipeline = job.config.pipeline_shape();
  EXPECT_FALSE(MemoryLimitOf(job, shape, pipeline).has_value());
  job.device_limit_bytes = 1 << 20;
  const auto limit = MemoryLimitOf(job, shape, pipeline);
  ASSERT_TRUE(limit.has_value());
  EXPECT_THAT(limit->limit_bytes, ElementsAre(1 << 20, 1 << 20));
  // 16 bytes for each parameter, and on the first of two stages two micro-batches.
  const auto chain = ActivationChain(shape).stages;
  for (int stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(limit->bytes(0, stage), 16 * 1056 + (2 - stage) * chain[0].options[0].saved_bytes);
    EXPECT_EQ(limit->bytes(1, stage), 16 * 244 + (2 - stage) * chain[1].options[0].saved_bytes);
  }
  // A block alone, and all of the model but one.
  job.device_limit_bytes = limit->bytes(0, 0) + limit->bytes(1, 0);
  const auto tight = MemoryLimitOf(job, shape, pipeline);
  EXPECT_THAT(
      PartsOf(shape, pipeline, parallel::ParsePartition("0,1,6").value(), {}, &*tight).status(),
      StatusIs(absl::StatusCode::kResourceExhausted,
               ::testing::StartsWith("partition: part 1 on stage 1 does not fit: layers 1 to 5")));
  // With the weights and all else on the host, and block inputs alone.
  job.config.recompute = recompute::ParsePolicy("block").value();
  const auto blocks = MemoryLimitOf(job, shape, pipeline);
  EXPECT_EQ(blocks->bytes(1, 0), 16 * 244 + 2 * recompute::AlignedBytes(shape.residual_bytes()));
  EXPECT_EQ(blocks->bytes(5, 1), 16 * 1032);
}

TEST(PipelinePartsTest, PartsThatTheModelDoesNotHaveAreRefused) {
  const auto check = [](const std::string& keys, int ranks) {
    const Job job = CreateJob(keys, ranks);
    return CheckParts(job.model, job.config);
  };
  EXPECT_OK(check(R"("pipeline": {"stages": 1})", 2));
  EXPECT_OK(check(R"("pipeline": {"stages": 6})", 6));
  EXPECT_THAT(
      check(R"("pipeline": {"stages": 7})", 7),
      StatusIs(
          kInvalid,
          "pipeline.stages (--pipeline) 7 with 1 chunk each (brigade.schedule, --schedule) cut "
          "the model into 7 parts, but embedding, 4 blocks and head are only 6"));
  EXPECT_THAT(
      check(R"("pipeline": {"stages": 4}, "brigade": {"schedule": "interleaved:2"})", 4),
      StatusIs(kInvalid,
               "pipeline.stages (--pipeline) 4 with 2 chunks each (brigade.schedule, --schedule) "
               "cut the model into 8 parts, but embedding, 4 blocks and head are only 6"));
  EXPECT_OK(check(R"("pipeline": {"stages": 2}, "brigade": {"partition": "0,3,6"})", 2));
  EXPECT_THAT(check(R"("pipeline": {"stages": 2}, "brigade": {"partition": "0,3,5"})", 2),
              StatusIs(kInvalid,
                       "brigade.partition (--partition): partition: boundaries 0,3,5; for 2 parts "
                       "of 6 layers there are 3 ascending ones from 0 to 6"));
}

}  // namespace
}  // namespace brigade::gpt
