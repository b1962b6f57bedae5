#ifndef BRIGADE_TESTS_EXAMPLES_GPT_GRID_JOB_H_
#define BRIGADE_TESTS_EXAMPLES_GPT_GRID_JOB_H_

// Trainings so small that all grids of eight ranks can make them.

#include <cstdint>
#include <string>

#include "brigade/examples/gpt/config.h"
#include "brigade/tests/examples/gpt/trained.h"

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
};

// A job for as many ranks as the grid has.
inline Job JobOf(const GridCase& grid, int shards, int stage, const std::string& precision,
                 const std::string& optimizer) {
  const int ranks = grid.tensor * grid.context * grid.data;
  const int64_t batch = 2 * grid.data;
  Job job;
  job.config = ParseConfig(Config(batch, stage, precision, optimizer), ranks, ".",
                           {.tensor = grid.tensor,
                            .context = grid.context,
                            .tensor_shards = shards,
                            .sequence_parallel = grid.sequence_parallel,
                            .tensor_overlap = grid.tensor_overlap})
                   .value();
  const int64_t heads = shards * grid.context;
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
