#ifndef BRIGADE_PARALLEL_PLAN_SEARCH_H_
#define BRIGADE_PARALLEL_PLAN_SEARCH_H_

// The best of all ways to train a model on a number of ranks.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/parallel/plan/configuration.h"
#include "brigade/parallel/plan/cost.h"
#include "brigade/parallel/plan/machine.h"
#include "brigade/parallel/plan/memory.h"

namespace brigade::parallel {

// What a search goes over: everything that divides, but for what is fixed here.
struct SearchSpace {
  int ranks = 1;
  std::optional<int> tensor = {}, context = {}, data = {}, pipeline = {};
  // Empty: all.
  std::vector<ScheduleChoice> schedules = {};
  std::optional<int> zero_stage = {};
  std::optional<Recomputation> recomputation = {};
  std::optional<int> micro_batch = {};
  // With Execution::replica_period; without it there are no replicas.
  std::optional<int> replicas = {};
  // Configuration::shard_ranks, 0 for all.
  std::optional<int> shard_ranks = {};
  // The most texts of a micro-batch; powers of two are tried.
  int largest_micro_batch = 16;
  // The most chunks of a stage of kInterleaved.
  int most_chunks = 8;
  double memory_bytes = std::numeric_limits<double>::infinity();
};

// InvalidArgument naming the number that is out of range.
absl::Status Validate(const SearchSpace& space);

struct Candidate {
  Configuration configuration = {};
  MemoryUse memory = {};
  StepTime time = {};
};

struct SearchResult {
  // By time; of equals the one with less memory first.
  std::vector<Candidate> candidates;
  // Of those, the ones that no other beats in both time and memory, by memory.
  std::vector<Candidate> frontier;
  // What was looked at: grids, and configurations of those that the model divides into.
  int64_t grids = 0;
  int64_t configurations = 0;
  // Why some were left out, and how many grids or configurations: their sum and the candidates are
  // all that was looked at.
  std::vector<std::pair<std::string, int64_t>> grids_left_out;
  std::vector<std::pair<std::string, int64_t>> left_out;
  // The least memory of any configuration that was left out for it; infinity if there is none.
  double least_memory_left_out = std::numeric_limits<double>::infinity();
};

// Tries all configurations: for each memory first, then time. Which are left out: schedules where
// there is one stage, stages of ZeRO where there is nothing to share, and kSelective where
// attention is fused and has nothing to make again; replicas of ranks that do not have the whole
// model; groups of one rank, which stage 0 is.
//
// Pruning      A rank needs more memory the fewer share its state: where a group does not fit,
//              smaller ones of the same configuration are not looked at. Nor is the plan of a group
//              made whose state alone, without padding and buffers, does not fit.
//
// Errors       Those of the Validates; NotFound with the counts if nothing fits.
absl::StatusOr<SearchResult> Search(const Transformer& model, const Machine& machine,
                                    const Execution& execution, const SearchSpace& space);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_SEARCH_H_
