#ifndef BRIGADE_EXAMPLES_GPT_JOB_H_
#define BRIGADE_EXAMPLES_GPT_JOB_H_

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "brigade/device/device.h"
#include "brigade/device/memory_stats.h"
#include "brigade/examples/gpt/corpus.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/parallel/grid.h"
#include "brigade/recompute/stash.h"
#include "brigade/train/config/config.h"
#include "brigade/train/times/pass_times.h"
#include "brigade/train/times/time_split.h"
#include "brigade/zero/plan/movement.h"
#include "brigade/zero/plan/traffic.h"

namespace brigade::gpt {

// Where a training is saved, and from where it goes on.
struct Checkpoints {
  // The folder of the checkpoints; empty: nothing is saved.
  std::string save = {};
  // Steps between two; 0: one at the end.
  int64_t save_every = 0;
  // How many stay; 0: all.
  int keep = 0;
  // A checkpoint, or a folder of them, of which the newest counts; empty: a new training.
  std::string resume = {};
  // Where it is damaged, the one before it counts.
  bool fall_back = false;
  // Fields that may be others than in the checkpoint (checkpoint::LoadOptions).
  std::vector<std::string> may_differ = {};
  // Weights with which a new training begins (checkpoint::LoadWeights); empty: random ones.
  std::string weights = {};
};

// Checksums of gradients and weights (digests/).
struct Digests {
  // Where they are written; empty: nowhere. And after how many steps each time.
  std::string file = {};
  int64_t every = 10;
  // Steps between two comparisons of what several ranks have alike; 0: none.
  int64_t verify_every = 0;
  // Gradients and weights of this step, the first being 1, are written to this folder; 0: of none.
  std::string dump = {};
  int64_t dump_step = 0;

  bool any() const { return !file.empty() || verify_every > 0 || dump_step > 0; }
};

// What to train; the same on all ranks.
struct Job {
  ModelOptions model;
  train::TrainConfig config;
  Corpus corpus;
  int64_t steps = 0;
  // The number of steps between evaluations of the held-out part; 0: only the first and the last.
  int64_t evaluate_every = 0;
  uint64_t seed = 1;
  device::Device device;
  // Of each rank's memory on the device; 0: none.
  int64_t device_limit_bytes = 0;
  // Of a CPU: ContextOptions::link_bytes_per_second. 0: none.
  int64_t device_link = 0;
  Checkpoints checkpoints = {};
  Digests digests = {};
};

// Of a rank's passes.
inline PassShape ShapeOf(const Job& job, const parallel::Coordinates& at = {}) {
  const parallel::GridShape& grid = job.config.grid;
  return {.model = job.model,
          .batch = job.config.batch.train_micro_batch_size_per_gpu,
          .dtype = job.config.zero.dtype,
          .tensor_ranks = grid.tensor,
          .tensor_rank = at.tensor,
          .context_ranks = grid.context,
          .context_rank = at.context,
          .context_exchange = job.config.context_exchange,
          .keep_gathered = job.config.keep_gathered,
          .tensor_overlap = job.config.tensor_overlap,
          .sum_wire = job.config.sum_wire};
}

// By parallel::GridGroup; groups that have the communicator of one before have 0.
using GroupBytes = std::array<int64_t, std::size(parallel::kGridGroups)>;

// Of one chunk of a pipeline's stage.
struct ChunkSummary {
  // Its part of the model; empty of a chunk that there is not.
  StageRange stages = {};
  // The mean seconds in which passes over a micro-batch computed (ChunkSummaries,
  // pipeline_report.h). A backward pass that is not split is in the first half.
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;

  double seconds() const { return forward + backward_input + backward_weight; }
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
  // Of a micro-batch's pass: its arena and gradient, in bytes, and its time by the plan, in
  // operations or seconds (TrainConfig::recompute_times); and both where nothing is made again.
  int64_t activation_bytes = 0;
  int64_t activation_bytes_without = 0;
  double planned_time = 0;
  double planned_time_without = 0;
  // Measured, of all passes.
  train::PassSeconds passes = {};
  // Where a step is profiled: the peak of a rank's products; and of that step what was computed, in
  // units of what would be where nothing is made again, by rank 0. 0: none was.
  double peak_flops_per_second = 0;
  double hardware_over_model = 0;
  // Of a rank of a pipeline.
  std::array<ChunkSummary, train::kMaxChunks> chunks = {};
  // Inputs of blocks that went to the host, or a file, and back in training steps, and in one by
  // the plan.
  recompute::StashMovement stashed = {};
  recompute::StashMovement stashed_of_step = {};
  // Of its part of the model; and the bytes of their weights with padding.
  int64_t parameters = 0;
  int64_t padded_bytes = 0;
  int64_t steps = 0;
  // The time of the steps, without evaluations.
  train::Seconds time = {};
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
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_JOB_H_
