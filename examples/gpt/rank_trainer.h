#ifndef BRIGADE_EXAMPLES_GPT_RANK_TRAINER_H_
#define BRIGADE_EXAMPLES_GPT_RANK_TRAINER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/pass_collectives.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/examples/gpt/rank_checkpoints.h"
#include "brigade/examples/gpt/recorder.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/dropout.h"
#include "brigade/parallel/grid.h"
#include "brigade/recompute/stash.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::gpt {

// One rank of a training: batches in, metrics out, a ZeroOptimizer between them.
//
// Host waits   The host enqueues up to kInFlight steps ahead, and waits for the oldest before the
//              next: the device never waits for the host. Evaluations wait.
// Interrupt    Each step carries the ranks' wish to stop; all stop after the same step, kInFlight
//              steps later.
// Errors       Those of the parts; FailedPrecondition when the loss scale is stuck at its minimum;
//              OutOfRange when the loss is not finite in a step that was not skipped. The other
//              ranks learn of it by the grid's end (Grid::Abort).
// Ranks        The grid's tensor ranks share the model, its context ranks the texts, its data ranks
//              the batch; data and context ranks are ZeRO's group. Losses are means over these.
class RankTrainer {
 public:
  // A call of all ranks; waits. All must outlive the trainer. Loads what job.checkpoints resumes.
  static absl::StatusOr<std::unique_ptr<RankTrainer>> Create(const Job& job, parallel::Grid& grid,
                                                             device::Context& context,
                                                             device::Stream& compute,
                                                             Recorder& recorder);

  // Trains to the end or until `stop`, and saves as job.checkpoints says. `observer` may be null.
  // True if interrupted.
  absl::StatusOr<bool> Train(Observer* observer, const std::atomic<bool>& stop);

  // Of this rank, so far.
  absl::StatusOr<RankSummary> Summary();
  // Of all ranks. A call of all ranks; waits.
  absl::StatusOr<std::vector<RankSummary>> Gather(const RankSummary& mine);

 private:
  static constexpr int kInFlight = 2;

  // What all ranks add up in a step.
  struct Sums {
    float loss;
    float stop;
  };
  // The memory of a step, from the copy of its batch until its metrics are read.
  struct StepInFlight {
    device::Buffer device, host_in, host_out;
    std::unique_ptr<device::Event> computed, done;
    // The number of the step; -1: no step is in flight.
    int64_t step = -1;
  };

  RankTrainer(const Job& job, parallel::Grid& grid, device::Context& context,
              device::Stream& compute, Recorder& recorder);

  // By which the plan of recomputation is made: the same on all ranks.
  absl::StatusOr<PassCosts> Costs();
  absl::Status Allocate(PartPlan plan);
  // Of a new training.
  absl::Status Initialize();

  int64_t micro_batches() const { return job_.config.zero.micro_batches; }
  // Of a text, this rank's positions and what follows the last one of each run.
  int64_t text_bytes() const { return shape_.positions() + std::ssize(shape_.runs()); }
  int64_t losses() const { return micro_batches() * shape_.rows(); }
  // The device memory of a step: sums, parts of the mean loss, losses, texts.
  static constexpr int64_t LossPartsOffset() { return 256; }
  int64_t LossesOffset() const { return LossPartsOffset() + nn::PartsOfLosses(losses()) * 8; }
  int64_t TextsOffset() const { return LossesOffset() + losses() * 4; }
  int64_t StepBytes() const {
    return TextsOffset() + micro_batches() * shape_.batch * text_bytes();
  }
  nn::Texts TextsOf(const StepInFlight& in_flight, int64_t micro_batch) const;
  // Of a micro-batch of the step that is next on the device: the step's number is the count of
  // updates that were tried before, skipped ones too, which a checkpoint has.
  nn::DropoutMask Dropout(int64_t micro_batch) const;
  static double* LossPartsOf(const StepInFlight& in_flight);
  float* LossesOf(const StepInFlight& in_flight, int64_t micro_batch) const;

  // This rank's part of a text that ranks share, in host memory of text_bytes; and of a sample.
  void CopyPart(const char* text, uint8_t* part) const;
  void SampleInto(int64_t step, int64_t sample, uint8_t* part);
  absl::Status EnqueueStep(int64_t step, bool stop);
  // Adds the sums of all ranks up: the loss over the ranks that differ in their texts.
  absl::Status AddUp(float* sums, device::Stream& stream);
  // Waits, and gives the error of the stream or of a group.
  absl::Status Synchronize(device::Stream& stream) const;
  // Waits for the step, if there is one, and tells the observer.
  absl::Status Collect(StepInFlight& in_flight, Observer* observer);
  absl::Status CollectAll(Observer* observer);
  // Null unless the inputs of stages go to a file.
  const device::FileOptions* StashFile() const;
  // So far.
  // What this rank has sent so far in each group that has a communicator of its own.
  GroupBytes SentInGroups() const;
  absl::StatusOr<GroupBytes> SentInGroupsOfStep();
  // The workspaces of all communicators.
  absl::StatusOr<int64_t> WorkspaceBytes();
  // Time and traffic between the two calls are those of the steps.
  void StartCounting();
  // Waits for the steps.
  absl::Status StopCounting();
  absl::StatusOr<double> Evaluate();
  absl::Status EvaluateAndTell(int64_t step, Observer* observer);

  const Job& job_;
  parallel::Grid& grid_;
  const PassShape shape_;
  const PassGroups groups_;
  // Of the ranks that differ in their texts.
  collectives::Communicator& replica_;
  device::Context& context_;
  device::Stream& compute_;
  Recorder& recorder_;
  std::unique_ptr<zero::ZeroOptimizer> zero_;
  std::unique_ptr<RankCheckpoints> checkpoints_;
  Start start_;
  std::unique_ptr<Transformer> transformer_;
  // [2] float: 1, and the loss scale.
  device::Buffer one_;
  std::array<StepInFlight, kInFlight> steps_;
  std::vector<float> learning_rates_;
  RankSummary summary_;
  bool stopped_ = false;
  // At the start of counting.
  zero::Traffic traffic_before_;
  zero::Movement movement_before_;
  recompute::StashMovement stash_before_;
  GroupBytes sent_before_ = {};
  // Where a text is before it is cut.
  std::vector<uint8_t> text_;
  // The start of counting.
  int64_t started_ns_ = 0;
  // The time of training before that.
  int64_t trained_ns_ = 0;
  // The time at which the last step was collected.
  int64_t collected_ns_ = 0;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_RANK_TRAINER_H_
