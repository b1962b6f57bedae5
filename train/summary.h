#ifndef BRIGADE_TRAIN_SUMMARY_H_
#define BRIGADE_TRAIN_SUMMARY_H_

// What ranks have used when a training ends.

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/memory_stats.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/stage_range.h"
#include "brigade/recompute/stash.h"
#include "brigade/train/config/config.h"
#include "brigade/train/times/pass_times.h"
#include "brigade/train/times/time_split.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/movement.h"
#include "brigade/zero/plan/traffic.h"

namespace brigade::train {

// By parallel::GridGroup; groups that have the communicator of one before have 0.
using GroupBytes = std::array<int64_t, std::size(parallel::kGridGroups)>;

// Of one chunk of a pipeline's stage.
struct ChunkSummary {
  // Its part of the model; empty of a chunk that there is not.
  parallel::StageRange stages = {};
  // The mean seconds in which passes over a micro-batch computed (ChunkSummaries). A backward pass
  // that is not split is in the first half.
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;

  double seconds() const { return forward + backward_input + backward_weight; }
};

// Of one rank: its chunks, of which there are at most kMaxChunks, and the means of their passes.
// `stages` has the sums over `micro_batches` of all steps, [stage of the model] (PassTimes): what
// ran, without waits and collectives. What is made again counts with the gradients of inputs.
std::array<ChunkSummary, kMaxChunks> ChunkSummaries(absl::Span<const PassSeconds> stages,
                                                    absl::Span<const parallel::StageRange> chunks,
                                                    int64_t micro_batches);

// Of a pass over a micro-batch: activations and their gradient, in bytes, and its time by the plan,
// in operations or seconds (TrainConfig::recompute_times); and both where nothing is made again.
struct ActivationSummary {
  int64_t bytes = 0;
  int64_t bytes_without = 0;
  double time = 0;
  double time_without = 0;
};

// What one rank used. Plain bytes: they are gathered from all ranks.
struct RankSummary {
  // The measured peak, in bytes by purpose.
  int64_t memory[device::kPurposes] = {};
  // The same by formula.
  int64_t memory_model[device::kPurposes] = {};
  // The host's, likewise.
  int64_t host_memory[device::kPurposes] = {};
  int64_t host_memory_model[device::kPurposes] = {};
  // Of the disk.
  int64_t file_bytes = 0;
  int64_t file_bytes_model = 0;
  // What offload has moved in training steps, and in one by formula.
  zero::Movement movement = {};
  zero::Movement movement_of_step = {};
  // The bytes counted in training steps.
  zero::Traffic traffic = {};
  // The bytes of one step by formula.
  zero::Traffic traffic_of_step = {};
  // Sent in all: by ZeRO, by ranks that share a model or texts, and for the mean loss and the wish
  // to stop.
  GroupBytes sent = {};
  GroupBytes sent_of_step = {};
  // With replicas: rounds that had an end, what this rank has sent to the other replicas in
  // training steps, and inside its own to gather what rounds have changed; and by formula.
  int64_t rounds = 0;
  int64_t rounds_sent = 0;
  int64_t rounds_sent_model = 0;
  int64_t rounds_gathered = 0;
  int64_t rounds_gathered_model = 0;
  ActivationSummary activations = {};
  // Measured, of all passes.
  PassSeconds passes = {};
  // Where a step is profiled: the peak of a rank's products; and of that step what was computed, in
  // units of what would be where nothing is made again, by rank 0. 0: none was.
  double peak_flops_per_second = 0;
  double hardware_over_model = 0;
  // Of a rank of a pipeline.
  std::array<ChunkSummary, kMaxChunks> chunks = {};
  // Inputs of blocks that went to the host, or a file, and back in training steps, and in one by
  // the plan.
  recompute::StashMovement stashed = {};
  recompute::StashMovement stashed_of_step = {};
  // Of its part of the model; and the bytes of their weights with padding.
  int64_t parameters = 0;
  int64_t padded_bytes = 0;
  int64_t steps = 0;
  // The time of the steps, without evaluations.
  Seconds time = {};
  // How many checkpoints, and how many could not be saved.
  int64_t saves = 0;
  int64_t failed_saves = 0;
  // Of the last one, in bytes.
  int64_t saved_bytes = 0;
  // From the begin of each save until it was on the disk, beside the steps or not.
  double save_seconds = 0;
  // What the steps waited for saves; and the time at the end, when nothing else was left to do.
  double held_up_seconds = 0;
  double last_save_seconds = 0;
};

// How a training ended.
struct Outcome {
  std::vector<RankSummary> ranks;
  bool interrupted = false;
  // What was trained by, where the config has left something open; else none.
  std::optional<zero::ZeroOptions> zero = {};
  // Of rank 0: data that was asked for beside the weights, such as digests, and that could not all
  // be written. The training is whole.
  absl::Status incomplete = {};
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_SUMMARY_H_
