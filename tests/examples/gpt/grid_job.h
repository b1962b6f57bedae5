#ifndef BRIGADE_TESTS_EXAMPLES_GPT_GRID_JOB_H_
#define BRIGADE_TESTS_EXAMPLES_GPT_GRID_JOB_H_

// Trainings so small that all grids of eight ranks can make them.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "brigade/train/config/config.h"

namespace brigade::gpt {

inline constexpr int kMostRanks = 8;
inline constexpr int64_t kGridSteps = 20;

// Tensor shards that the largest number of tensor ranks beside these has.
inline int ShardsBeside(int context, int data) {
  int shards = 1;
  while (2 * shards * context * data <= kMostRanks) shards *= 2;
  return shards;
}

// Ranks that share a model or texts, and the rest.
struct GridCase {
  int tensor = 1;
  int context = 1;
  int data = 1;
  bool sequence_parallel = false;
  // Pieces of products beside whose exchange others are multiplied; 0: whole ones, which wait.
  int tensor_overlap = 0;
  // Of context ranks; they then share any number of heads.
  bool ring = false;
  // Stages that share the model's layers, and what they run.
  int pipeline = 1;
  const char* schedule = "1f1b";
  // Of one text each; with 1 there are two in it.
  int micro_batches = 1;
  // ZeroOptions::shard_ranks; 0: one group.
  int shard_ranks = 0;

  int ranks() const { return tensor * context * data * pipeline; }
};

inline std::string ToString(const GridCase& grid) {
  return absl::StrCat("tensor ", grid.tensor, grid.sequence_parallel ? " (own rows)" : "",
                      ", context ", grid.context, grid.ring ? " (ring)" : "", ", data ", grid.data,
                      ", pipeline ", grid.pipeline,
                      grid.pipeline > 1 ? absl::StrCat(" by ", grid.schedule) : "",
                      grid.shard_ranks > 0 ? absl::StrCat(", shards of ", grid.shard_ranks) : "");
}

// A job for as many ranks as the grid has.
inline Job JobOf(const GridCase& grid, int shards, int stage, const std::string& precision,
                 const std::string& optimizer) {
  const bool has_pipeline = grid.pipeline > 1;
  const int64_t batch = std::max(2, grid.micro_batches) * grid.data;
  Job job;
  job.config =
      train::ParseConfig(
          Config(
              batch, stage, precision,
              absl::StrCat(optimizer, ", \"gradient_accumulation_steps\": ", grid.micro_batches)),
          grid.ranks(), ".",
          {.tensor = grid.tensor,
           .context = grid.context,
           .tensor_shards = shards,
           .sequence_parallel = grid.sequence_parallel,
           .tensor_overlap =
               grid.tensor_overlap > 0 ? std::optional(grid.tensor_overlap) : std::nullopt,
           .context_exchange =
               grid.ring ? std::optional(train::ContextExchange::kRing) : std::nullopt,
           .pipeline = grid.pipeline,
           .shard_ranks = grid.shard_ranks > 0 ? std::optional(grid.shard_ranks) : std::nullopt,
           .schedule = has_pipeline ? std::optional(parallel::ParseSchedule(grid.schedule).value())
                                    : std::nullopt})
          .value();
  // Three of a shard are what no two, four or eight context ranks could share by heads.
  const int64_t heads = shards * (grid.ring ? 3 : grid.context);
  job.model = {.layers = 2,
               .heads = heads,
               .width = 4 * heads,
               .context = 8 * grid.context,
               .tensor_shards = shards,
               .sequence_parallel = grid.sequence_parallel,
               .tensor_pieces = job.config.tensor_pieces};
  static const Corpus corpus = ReadLicences().value();
  job.corpus = corpus;
  job.corpus.held_out.resize(1000);
  job.steps = kGridSteps;
  return job;
}

}  // namespace brigade::gpt

#endif  // BRIGADE_TESTS_EXAMPLES_GPT_GRID_JOB_H_
