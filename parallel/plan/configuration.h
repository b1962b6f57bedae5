#ifndef BRIGADE_PARALLEL_PLAN_CONFIGURATION_H_
#define BRIGADE_PARALLEL_PLAN_CONFIGURATION_H_

// What a planner chooses, and what it is told.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/parallel/plan/transformer.h"

namespace brigade::parallel {

// Which activations of a block are made again in its backward pass. kSelective: those of attention
// whose number grows with the square of the context. kFull: all but the block's input.
enum class Recomputation : uint8_t { kNone, kSelective, kFull };
inline constexpr Recomputation kRecomputations[] = {Recomputation::kNone, Recomputation::kSelective,
                                                    Recomputation::kFull};
// "none", "selective", "full". InvalidArgument naming the text.
absl::string_view Name(Recomputation recomputation);
absl::StatusOr<Recomputation> ParseRecomputation(absl::string_view text);

enum class ContextMethod : uint8_t { kRing, kUlysses };
// "ring", "ulysses". InvalidArgument naming the text.
absl::string_view Name(ContextMethod method);
absl::StatusOr<ContextMethod> ParseContextMethod(absl::string_view text);

// How a step is carried out whatever the configuration.
struct Execution {
  // Texts of a step.
  int64_t batch = 2048;
  // With tensor ranks: norms, dropout and residuals on 1/t of the rows.
  bool sequence_parallel = true;
  // Attention that keeps no scores, and skips what is above the diagonal.
  bool fused_attention = true;
  ContextMethod context_method = ContextMethod::kRing;
  // Of an element of sums over tensor ranks: 2, or 4 for the same bits on any number (decision
  // 0120).
  int tensor_sum_bytes = 2;
  // Gradients are reduced, and weights gathered, beside the passes.
  bool overlap_data = true;
  // Replicas update locally (replicas/), and come together after so many steps; 0: there are none.
  // That is another training than theirs in common, which a loss tells and no model of time.
  int64_t replica_period = 0;
  // Of an element of their rounds: 2 or 4.
  int round_bytes = 4;
  // Of the device's memory, for what the model does not know: the driver, libraries, the
  // workspaces of collectives.
  double reserved_bytes = 4e9;
};

// InvalidArgument naming the option and its value.
absl::Status Validate(const Execution& execution);

struct Configuration {
  GridShape grid = {};
  ScheduleChoice schedule = {};
  int zero_stage = 0;
  Recomputation recomputation = Recomputation::kNone;
  // Texts of a micro-batch.
  int micro_batch = 1;
  // Whole copies that update locally, each of as many ranks with the same weights.
  int replicas = 1;
  // Of the ranks of a replica, which have the same weights, those that share a state
  // (ZeroOptions::shard_ranks): the first so many, the next, ...; 0: all. Groups sum slices of
  // gradients once a step.
  int shard_ranks = 0;

  friend bool operator==(const Configuration&, const Configuration&) = default;
};

// The ranks that share a state, and the groups of a replica that have one each.
int ShardRanks(const Configuration& configuration);
int ShardGroups(const Configuration& configuration);

// The micro-batches of a step, if they are whole.
int64_t MicroBatches(const Configuration& configuration, const Execution& execution);

PipelineShape ShapeOf(const Configuration& configuration, const Execution& execution);

// The blocks of a part of the model, of which there are stages * chunks, and of the fullest and the
// last stage. Parts have one block less where blocks do not suffice, and of these the last part is
// one: it has the logits besides.
int64_t LayersOfPart(const Transformer& model, const Configuration& configuration);
int64_t LayersOfStage(const Transformer& model, const Configuration& configuration);
int64_t LayersOfLastStage(const Transformer& model, const Configuration& configuration);

// Why the model cannot run so, in words, or nothing: what must divide does not.
//
// Errors       InvalidArgument with both numbers.
absl::Status Validate(const Configuration& configuration, const Transformer& model,
                      const Execution& execution);

// "t 8, c 1, d 16, p 8, interleaved:2, ZeRO 1, recompute none, micro-batch 1"; behind it, where
// there are such, ", 2 replicas, groups of 8"
std::string ToString(const Configuration& configuration);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_CONFIGURATION_H_
