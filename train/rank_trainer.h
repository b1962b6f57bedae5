#ifndef BRIGADE_TRAIN_RANK_TRAINER_H_
#define BRIGADE_TRAIN_RANK_TRAINER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/replicas/outer_optimizer.h"
#include "brigade/train/observers/observer.h"
#include "brigade/train/rank_books.h"
#include "brigade/train/rank_checkpoints.h"
#include "brigade/train/rank_digests.h"
#include "brigade/train/rank_memory.h"
#include "brigade/train/step_batch.h"
#include "brigade/train/step_profiler.h"
#include "brigade/train/summary.h"
#include "brigade/train/task.h"
#include "brigade/train/times/recorder.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::train {

// One rank of a training: batches in, metrics out, a ZeroOptimizer between them.
//
// Host waits   The host enqueues up to kInFlight steps ahead, and waits for the oldest before the
//              next: the device never waits for the host. Evaluations wait.
// Interrupt    Each step carries the ranks' wish to stop; all stop after the same step, kInFlight
//              steps later.
// Errors       Those of the parts; FailedPrecondition when the loss scale is stuck at its minimum;
//              OutOfRange when the loss is not finite in a step that was not skipped. The other
//              ranks learn of it by the grid's end (Grid::Abort).
// Ranks        The grid's tensor ranks share the model's matrices, its pipeline ranks the model's
//              stages, its context ranks the samples, its data ranks the batch; data and context
//              ranks are ZeRO's group. Losses are means over these, and all ranks know them.
//              Without a pipeline a rank is one of a single stage.
// Replicas     With TrainConfig::replicas the data ranks are shared out among copies that update
//              locally: behind each step comes OuterOptimizer::Step. Losses between two rounds are
//              means over the ranks of a replica, so that only rounds cross between replicas; the
//              wish to stop waits for a round.
class RankTrainer {
 public:
  // A call of all ranks; waits. All must outlive the trainer. Loads what job.checkpoints resumes.
  static absl::StatusOr<std::unique_ptr<RankTrainer>> Create(const Job& job, const Task& task,
                                                             parallel::Grid& grid,
                                                             device::Context& context,
                                                             device::Stream& compute,
                                                             Recorder& recorder);

  // Trains to the end or until `stop`, and saves as job.checkpoints says. `observer` may be null.
  // True if interrupted.
  absl::StatusOr<bool> Train(Observer* observer, const std::atomic<bool>& stop);

  // The same one by one, for a caller with a loop of its own. All are calls of all ranks.
  //
  //   while (BeginStep()) { RunStep(); EndStep(); }
  //   End();
  //
  // Instead of RunStep, without a pipeline: for each micro-batch in order Forward, then Backward.
  // Calls out of turn are FailedPrecondition, and nothing happens.
  //
  // The next step, with its data; before it what is due, evaluation and save. False: there is none,
  // all are made or the ranks have stopped.
  absl::StatusOr<bool> BeginStep(Observer* observer, bool stop);
  bool in_step() const { return in_step_; }
  // FailedPrecondition where Forward and Backward are not for this job.
  absl::Status CheckOneByOne() const;
  absl::Status RunStep();
  absl::Status Forward();
  absl::Status Backward();
  // Of a step: all micro-batches are through.
  bool is_whole() const { return micro_batch_ == micro_batches() && !is_forward_; }
  absl::Status EndStep();
  // Waits; evaluates and saves, unless the ranks have stopped.
  absl::StatusOr<bool> End(Observer* observer);
  // Steps that are made or enqueued.
  int64_t step() const { return step_; }

  // Between two steps; waits. The mean loss over the held-out part, in nats.
  absl::StatusOr<double> EvaluateNow(Observer* observer);
  // Between two steps; waits. To job.checkpoints.save.
  absl::Status SaveNow(Observer* observer);
  // Between two steps; waits. A checkpoint of the same training, with which it goes on.
  absl::Status Load(const std::string& folder, Observer* observer);

  // Between two steps: waits for those before it, and makes the call.
  absl::Status AtRest(Observer* observer, absl::FunctionRef<absl::Status()> call);
  // The same for what may change weights. FailedPrecondition with replicas.
  absl::Status ChangeModel(Observer* observer, absl::FunctionRef<absl::Status()> change);
  // Null where the task is not a ModelTask.
  models::Model* model() { return part_->model(); }
  zero::ZeroOptimizer& zero() { return *zero_; }
  // The ranks that train one model.
  collectives::Communicator& ranks() { return *inside_; }

  // Of this rank, so far.
  absl::StatusOr<RankSummary> Summary() const;
  // Of Outcome. `waits`: for the disk.
  absl::Status Incomplete(bool waits);
  // Of all ranks. A call of all ranks; waits.
  absl::StatusOr<std::vector<RankSummary>> Gather(const RankSummary& mine);

 private:
  friend class RankTrainerTestPeer;

  static constexpr int kInFlight = kStepsInFlight;

  RankTrainer(const Job& job, const Task& task, parallel::Grid& grid, device::Context& context,
              device::Stream& compute, Recorder& recorder)
      : job_(job),
        task_(task),
        grid_(grid),
        context_(context),
        compute_(compute),
        recorder_(recorder) {}

  // The lists of the pipeline, and of this stage the part of the model.
  absl::Status PlanStage();
  absl::Status Allocate();
  // Of a new training.
  absl::Status Initialize();

  // None: the ranks train one model.
  std::optional<RankCheckpoints::Replica> Replica() {
    if (between_ == nullptr) return std::nullopt;
    return RankCheckpoints::Replica{between_->rank(), &grid_.world()};
  }
  int64_t micro_batches() const { return job_.config.zero.micro_batches; }

  // Whether replicas meet behind the step.
  bool IsRound(int64_t step) const;
  StepBatch& BatchOf(int64_t step) { return steps_[static_cast<size_t>(step % kInFlight)]; }
  absl::Status EnqueueData(bool stop);
  // Once, before the first step.
  absl::Status Begin(Observer* observer);
  absl::Status CheckPass(bool is_backward) const;
  absl::Status CheckBetweenSteps(const char* call) const;
  // Waits for all steps, and tells the observer of them.
  absl::Status Rest(Observer* observer);
  // Of the ranks of a replica, or of all.
  absl::Status EnqueueSums(StepBatch& batch, bool of_all, device::Stream& stream);
  // Of the first group's update of this number, from 1.
  double LearningRateOf(int64_t update) const;
  // Waits, and gives the error of a stream or of a group.
  absl::Status Synchronize();
  // Waits for the step, if there is one, and tells the observer.
  absl::Status Collect(StepBatch& batch, Observer* observer);
  absl::Status CollectAll(Observer* observer);
  // `steps`: those that were made before.
  void StartCounting(int64_t steps);
  // Waits for the steps.
  absl::Status StopCounting(Observer* observer);
  absl::StatusOr<double> Evaluate();
  absl::StatusOr<double> EvaluateAndTell(Observer* observer);

  const Job& job_;
  const Task& task_;
  parallel::Grid& grid_;
  device::Context& context_;
  device::Stream& compute_;
  Recorder& recorder_;
  std::unique_ptr<zero::ZeroOptimizer> zero_;
  // Null: the ranks train one model.
  std::unique_ptr<replicas::OuterOptimizer> outer_;
  // Of this rank's replica, or all; and those with its place in each replica, or null.
  collectives::Communicator* inside_ = nullptr;
  collectives::Communicator* between_ = nullptr;
  std::unique_ptr<RankCheckpoints> checkpoints_;
  // Null: the job has none.
  std::unique_ptr<RankDigests> digests_;
  Start start_;
  std::unique_ptr<parallel::PipelineExecutor> executor_;
  std::unique_ptr<RankPart> part_;
  std::vector<StepBatch> steps_;
  std::unique_ptr<RankBooks> books_;
  // Null: no step is profiled.
  std::unique_ptr<StepProfiler> profiler_;
  std::vector<float> learning_rates_;
  bool stopped_ = false;
  // Begin has been called; and the time goes into the books.
  bool has_begun_ = false, is_counting_ = false;
  // Steps that are enqueued, but for the one in the making, if there is one.
  int64_t step_ = 0;
  bool in_step_ = false;
  // Of it: micro-batches that are through, and whether the next one's forward pass is.
  int64_t micro_batch_ = 0;
  bool is_forward_ = false;
  // The executor has run them, and the step's collective.
  bool ran_ = false;
  // The time at which the last step was collected.
  int64_t collected_ns_ = 0;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_RANK_TRAINER_H_
