// What fits is known to the byte: a training with just so much memory runs, and one byte less is
// too little.

#include "brigade/tune/rank_model.h"

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tune/setup.h"
#include "brigade/tune/trials.h"
#include "brigade/tune/world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::tune {
namespace {

using ::brigade::testing::StatusIs;

gpt::Job JobOf(const std::string& keys, int ranks) {
  gpt::Job job;
  job.model = {.layers = 2, .heads = 4, .width = 32, .context = 32};
  job.config = train::ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type":
      "AdamW"}, )",
                                               keys, "}"),
                                  ranks)
                   .value();
  job.model.tensor_shards = job.config.tensor_shards;
  job.model.sequence_parallel = job.config.sequence_parallel;
  job.model.tensor_pieces = job.config.tensor_pieces;
  static const gpt::Corpus corpus = gpt::ReadLicences().value();
  job.corpus = corpus;
  return job;
}

struct Case {
  const char* name;
  int ranks;
  const char* keys;
};

class RankModelTest : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    All, RankModelTest,
    ::testing::Values(
        Case{"Stage0", 2, R"("zero_optimization": {"stage": 0})"},
        Case{"Stage1Accumulates", 2,
             R"("fp16": {"enabled": true}, "zero_optimization": {"stage": 1},
                "train_micro_batch_size_per_gpu": 1)"},
        Case{"Stage2SmallBuckets", 2,
             R"("bf16": {"enabled": true},
                "zero_optimization": {"stage": 2, "reduce_bucket_size": 4096},
                "brigade": {"live_units": 1, "recompute": "block"})"},
        Case{"Stage3", 4,
             R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 3},
                "brigade": {"live_units": 4, "recompute": "selective",
                            "algorithm": "parameter_server"})"},
        Case{"Stage3Offload", 2,
             R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
                "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}})"},
        Case{"Stash", 1, R"("brigade": {"recompute": "block", "stash": "host"})"},
        Case{"Tensor", 4,
             R"("zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 2},
                "brigade": {"sequence_parallel": true})"},
        Case{"Ulysses", 4, R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 2},
                             "sequence_parallel_size": 2)"},
        Case{"Ring", 2, R"("sequence_parallel_size": 2, "brigade": {"context_exchange": "ring"})"},
        Case{"Pipeline", 4,
             R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
                "train_micro_batch_size_per_gpu": 1, "pipeline": {"stages": 2})"},
        Case{"ZeroBubble", 2,
             R"("train_micro_batch_size_per_gpu": 1, "pipeline": {"stages": 2},
                "brigade": {"schedule": "zb-h1"})"},
        Case{"Ring algorithm", 4,
             R"("zero_optimization": {"stage": 3},
                "brigade": {"reduction": "rounded_per_hop", "algorithm": "ring"})"},
        Case{"Groups", 4, R"("zero_optimization": {"stage": 2, "mics_shard_size": 2})"}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::erase(name, ' ');
      return name;
    });

TEST_P(RankModelTest, KnowsToTheByteWhatFits) {
  const Case& param = GetParam();
  gpt::Job job = JobOf(param.keys, param.ranks);
  ASSERT_OK_AND_ASSIGN(auto world, World::Create(param.ranks, device::Cpu(), {}, nullptr));
  Figures figures;
  figures.topology.ranks_of_node = {param.ranks};
  figures.topology.inside = figures.topology.between = {1e-6, 1e9};
  RankModel model(*world, figures);
  ASSERT_OK_AND_ASSIGN(const Prediction prediction, model.Predict(job));
  EXPECT_GT(prediction.seconds.total(), 0);
  const std::atomic<bool> stop = false;
  const TrialSteps steps = {.first = 1, .last = 2};

  // What the training's own books have, and what is there for a moment beside it.
  ASSERT_OK_AND_ASSIGN(const Measured measured, Try(job, param.ranks, steps, stop));
  EXPECT_EQ(measured.device_bytes, measured.modelled_bytes);
  const int64_t needed = prediction.needs.device_bytes;
  EXPECT_LE(measured.device_bytes, needed);

  job.device_limit_bytes = needed;
  // A pipeline goes by the limit where it cuts.
  ASSERT_OK_AND_ASSIGN(const Prediction within, model.MemoryOf(job));
  EXPECT_EQ(within.needs.device_bytes, needed);
  EXPECT_OK(Try(job, param.ranks, steps, stop));
  job.device_limit_bytes = needed - 1;
  EXPECT_THAT(Try(job, param.ranks, steps, stop), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(RankModelErrorsTest, ABudgetThatIsTooSmallIsAnErrorOfThePlanner) {
  const gpt::Job job = JobOf(R"("brigade": {"recompute": "budget:1"})", 1);
  ASSERT_OK_AND_ASSIGN(auto world, World::Create(1, device::Cpu(), {}, nullptr));
  Figures figures;
  figures.topology.ranks_of_node = {1};
  RankModel model(*world, figures);
  EXPECT_THAT(model.MemoryOf(job), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(MeasuredCostsTest, LieOnALineBetweenTwoBatchesAndBeyond) {
  MeasuredCosts costs = {.small_batch = 2, .large_batch = 4};
  costs.small.block = {1, 2};
  costs.large.block = {2, 5};
  EXPECT_DOUBLE_EQ(costs.At(3).block.forward, 1.5);
  EXPECT_DOUBLE_EQ(costs.At(8).block.backward, 11);
  EXPECT_DOUBLE_EQ(costs.At(1).block.forward, 0.5);
  costs.large_batch = 2;
  EXPECT_DOUBLE_EQ(costs.At(4).block.forward, 2);
}

}  // namespace
}  // namespace brigade::tune
