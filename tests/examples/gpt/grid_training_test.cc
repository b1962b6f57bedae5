// Trainings on grids: with shards that any number of tensor ranks share the same bits, and otherwise
// what one rank would have done.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "brigade/tests/testing/sanitizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

constexpr int kMostRanks = 8;
constexpr int64_t kGridSteps = 20;

// Tensor shards that the largest number of tensor ranks beside these has.
int ShardsBeside(int context, int data) {
  int shards = 1;
  while (2 * shards * context * data <= kMostRanks) shards *= 2;
  return shards;
}

struct Case {
  int tensor = 1;
  int context = 1;
  int data = 1;
  bool sequence_parallel = false;
};

Job JobOf(const Case& grid, int shards, int stage, const std::string& precision,
          const std::string& optimizer) {
  const int ranks = grid.tensor * grid.context * grid.data;
  const int64_t batch = 2 * grid.data;
  Job job;
  job.config = ParseConfig(Config(batch, stage, precision, optimizer), ranks, ".",
                           {.tensor = grid.tensor,
                            .context = grid.context,
                            .tensor_shards = shards,
                            .sequence_parallel = grid.sequence_parallel})
                   .value();
  const int64_t heads = shards * grid.context;
  job.model = {.layers = 2,
               .heads = heads,
               .width = 4 * heads,
               .context = 8 * grid.context,
               .tensor_shards = shards,
               .sequence_parallel = grid.sequence_parallel};
  static const Corpus corpus = ReadLicences().value();
  job.corpus = corpus;
  job.corpus.held_out.resize(1000);
  job.steps = kGridSteps;
  return job;
}

using Parameter = std::tuple<std::string, bool>;
class GridTrainingTest : public ::testing::TestWithParam<Parameter> {};
INSTANTIATE_TEST_SUITE_P(All, GridTrainingTest,
                         ::testing::Combine(::testing::Values("fp32", "fp16", "bf16"),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "SequenceParallel" : "");
                         });

TEST_P(GridTrainingTest, AnyNumberOfTensorRanksGivesTheSameBitsInEveryStage) {
  const auto& [precision, sequence_parallel] = GetParam();
  for (int context = 1; context <= kMostRanks; ++context) {
    for (int data = 1; context * data <= kMostRanks; ++data) {
      const int shards = ShardsBeside(context, data);
      if (sequence_parallel && shards == 1) continue;
      const Trained whole =
          Train(JobOf({1, context, data, sequence_parallel}, shards, 0, precision, kAdamW),
                context * data);
      for (int tensor = 1; tensor <= shards; tensor *= 2) {
        for (int stage = 0; stage < zero::kStages; ++stage) {
          SCOPED_TRACE(absl::StrCat("tensor ", tensor, " of ", shards, ", context ", context,
                                    ", data ", data, ", stage ", stage));
          const Case grid = {tensor, context, data, sequence_parallel};
          const Trained run =
              Train(JobOf(grid, shards, stage, precision, kAdamW), tensor * context * data);
          ASSERT_EQ(run.losses.size(), static_cast<size_t>(kGridSteps));
          EXPECT_EQ(run.losses, whole.losses);
          EXPECT_EQ(run.held_out, whole.held_out);
          ExpectModelledMemoryAndTraffic(run, kGridSteps);
        }
      }
    }
  }
}

}  // namespace
}  // namespace brigade::gpt
