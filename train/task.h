#ifndef BRIGADE_TRAIN_TASK_H_
#define BRIGADE_TRAIN_TASK_H_

// What a training asks of a model and its data, whatever they are: of all ranks, and of one rank's
// part of them.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/checkpoint/fields.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pass_collective.h"
#include "brigade/parallel/pipeline/buffers.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/parallel/pipeline/stage_module.h"
#include "brigade/parallel/pipeline/stage_range.h"
#include "brigade/profile/step_profile.h"
#include "brigade/recompute/stash.h"
#include "brigade/train/job.h"
#include "brigade/train/step_batch.h"
#include "brigade/train/summary.h"
#include "brigade/train/times/recorder.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::models {
class Model;
}

namespace brigade::train {

// One rank's part of a model: which of its stages it has (parallel/pipeline: without a pipeline one
// part of all), what their passes keep, and the passes. First Plan, then the formulas, then
// Allocate, then the passes.
//
// Stream       Passes are enqueued on the stream that CreatePart was given.
// Errors       Those of the model.
class RankPart {
 public:
  virtual ~RankPart() = default;

  // What a micro-batch sends from one stage of a pipeline to the next.
  virtual parallel::BoundaryShape boundary() const = 0;
  // What a batch has of this rank.
  virtual BatchShape batch_shape() const = 0;

  // Cuts the model, takes the part of a stage that has room for these, and decides what its passes
  // keep. A call of all ranks, which must come to the same cut.
  virtual absl::Status Plan(int stage, const parallel::StageBuffers& buffers) = 0;

  // Ranges of the model's stages, one for each chunk.
  virtual absl::Span<const parallel::StageRange> chunks() const = 0;
  // The units of all chunks in their order, and the first one of each chunk.
  virtual zero::ModelSpec spec() const = 0;
  virtual std::vector<int> first_units() const = 0;
  // Without a pipeline: the units whose weights a backward pass uses, in this order
  // (ZeroOptions::backward_units).
  virtual std::vector<int> backward_units() const = 0;
  // A parameter of the part is tied to one of another stage's.
  virtual bool is_tied_outside() const { return false; }
  // What a ModelTask trains; null of other tasks.
  virtual models::Model* model() { return nullptr; }
  // How the part lies in the model's checkpoint.
  virtual checkpoint::ModelPart checkpoint_part() const = 0;
  // Of ranks that have the model's end, and with it the same losses, one counts them.
  virtual bool counts_losses() const = 0;

  // By formula: all that the passes have on any tier, without ZeroOptimizer's and without
  // workspaces of collectives.
  virtual absl::StatusOr<std::vector<zero::MemoryTerm>> Memory() const = 0;
  // What the passes over a whole micro-batch call of the grid's groups: what their communicators
  // allocate, and what this rank sends. Where samples are missing it is less.
  virtual std::vector<parallel::PassCollective> CollectivesOfPasses() const = 0;
  // Of a micro-batch: activations with what is made again, and without.
  virtual ActivationSummary activations() const = 0;
  // What goes to a slower tier and back for a micro-batch; and has in all so far.
  virtual recompute::StashMovement stashed_in_pass() const { return {}; }
  virtual recompute::StashMovement stashed() const { return {}; }
  // Of files, measured.
  virtual int64_t stash_file_bytes() const { return 0; }

  // The memory of the passes; `zero` has spec(). It must outlive the part.
  virtual absl::Status Allocate(zero::ZeroOptimizer& zero) = 0;
  // Of a new training: the values of a parameter of spec().
  virtual absl::Status Initialize(int parameter, absl::Span<float> values) const = 0;

  // The passes over a batch: of a step, whose one collective (ListsOf) ends with the optimizer's
  // step; or forward passes to evaluate.
  virtual parallel::StageModule& Train(StepBatch& batch) = 0;
  virtual parallel::StageModule& Evaluate(StepBatch& batch) = 0;

  // For a profile, the operations of a step's passes by formula: [stage of the model], nothing of
  // those that other ranks have. CreatePart refuses a profile where there is no formula.
  virtual std::vector<profile::UnitSize> UnitsOfStep() const { return {}; }
  // And tokens and operations of a step of all ranks, without what is made again.
  virtual profile::Training TrainingOfStep() const { return {}; }

  // Writes this rank's samples of a step, which are the next step's but after a resume, and sets
  // what they weigh.
  virtual absl::Status WriteStep(int64_t step, StepBatch& batch) = 0;
  // The samples of the held-out part from `first` on, as one micro-batch. Behind the last one may
  // be anything.
  virtual absl::Status WriteHeldOut(int64_t first, int64_t micro_batch, StepBatch& batch) = 0;
};

// With what a rank's part is made. All must outlive it.
struct RankPlace {
  const Job& job;
  parallel::Grid& grid;
  device::Context& context;
  device::Stream& compute;
  Recorder& recorder;
};

// A model and its data. The same on all ranks, whose threads call it at the same time.
class Task {
 public:
  virtual ~Task() = default;

  // A call of all ranks of the place's grid. InvalidArgument, on all, for a model or data that the
  // job cannot be run with.
  virtual absl::StatusOr<std::unique_ptr<RankPart>> CreatePart(const RankPlace& place) const = 0;

  // What ranks must have alike, beside the job: another value is another result, or a hang.
  virtual collectives::JobValues Values(const Job& job) const = 0;
  // What a checkpoint's training must have alike, beside parameters and optimizer.
  virtual checkpoint::Fields Fields(const Job& job) const = 0;
  // The whole model, as a rank at this place of the grid, on this device, shares it.
  virtual absl::StatusOr<zero::ModelSpec> Spec(const Job& job, const parallel::Coordinates& at,
                                               device::Context& context) const = 0;

  // Of the held-out part, of all ranks: samples, and how many of their losses count.
  virtual int64_t held_out_samples() const = 0;
  virtual int64_t held_out_losses() const = 0;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TASK_H_
