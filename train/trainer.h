#ifndef BRIGADE_TRAIN_TRAINER_H_
#define BRIGADE_TRAIN_TRAINER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/collectives/init.h"
#include "brigade/device/context.h"
#include "brigade/device/device.h"
#include "brigade/device/stream.h"
#include "brigade/models/model.h"
#include "brigade/parallel/grid.h"
#include "brigade/train/job.h"
#include "brigade/train/model_task.h"
#include "brigade/train/observers/observer.h"
#include "brigade/train/observers/observers.h"
#include "brigade/train/rank_trainer.h"
#include "brigade/train/summary.h"
#include "brigade/train/task.h"
#include "brigade/train/times/recorder.h"
#include "brigade/train/watch.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::train {

// How long a rank may be silent in a collective before the others give up.
inline constexpr absl::Duration kDefaultTimeout = absl::Seconds(60);
// And how long ranks that are processes wait in Create for one that does not come. No flag and no
// key changes it: a program of one's own does, as one whose ranks begin minutes apart.
inline constexpr absl::Duration kDefaultConnectTimeout = absl::Seconds(30);

// Beside the job, what a rank's training has of its process.
struct TrainerOptions {
  // Hears of rank 0's steps, or null. This and what follows outlives the trainer.
  Observer* observer = nullptr;
  // Lines of progress, monitors and the like; null: the trainer makes the monitors that the config
  // names, and ends them with the training.
  Watch* watch = nullptr;
  // Ends the training behind the next steps, on all ranks; or null.
  const std::atomic<bool>* stop = nullptr;
  // On rank 0: called at the end, before any rank leaves, because mpirun kills all when the first
  // does.
  std::function<void(const Outcome&)> report = nullptr;

  // kAuto: threads with a group; else NCCL on a GPU, Gloo on the CPU.
  collectives::Backend backend = collectives::Backend::kAuto;
  // Of ranks that are threads of this process.
  std::shared_ptr<collectives::ThreadGroup> group = nullptr;
  absl::Duration timeout = kDefaultTimeout;
  absl::Duration connect_timeout = kDefaultConnectTimeout;
  // Of ranks that are processes, as collectives::InitOptions says: InvalidArgument beside a group.
  std::string rendezvous_folder = {};
  std::string interface = {};
  bool verify_collectives = true;
  std::optional<collectives::NcclApi> nccl = std::nullopt;
};

// The device of a rank of the job: of processes that a launcher has started, on GPUs, the one of
// their local rank.
device::Device DeviceOf(const Job& job, const collectives::LaunchInfo& launch_info);

// The context of a rank of the job, which the recorder follows.
absl::StatusOr<std::unique_ptr<device::Context>> ContextOf(const Job& job, int rank,
                                                           Recorder& recorder);

// One rank of a training of any model, with all that a config says: communicator, grid, ZeRO stage,
// precision, schedule, accumulation, offload, compression, replicas, checkpoints, digests,
// monitors, profile.
//
//   BRIGADE_ASSIGN_OR_RETURN(auto trainer, Trainer::Create(job, model, data, launch_info));
//   return trainer->Fit().status();
//
// or, with a loop of one's own, in which Step takes the update when a step's micro-batches are
// through, and does nothing before:
//
//   while (true) {
//     BRIGADE_ASSIGN_OR_RETURN(const bool has_batch, trainer->Batch());
//     if (!has_batch) break;
//     BRIGADE_RETURN_IF_ERROR(trainer->Backward());
//     BRIGADE_RETURN_IF_ERROR(trainer->Step());
//   }
//   return trainer->Finish().status();
//
// The bits are the same. All ranks make the same calls in the same order.
//
// Rates        Learning rates go by updates: not by ranks, micro-batches or skipped steps.
// Host waits   The host is up to two steps ahead (rank_trainer.h); Evaluate, Save, Load and Finish
//              wait.
// Errors       The first error of any rank ends the training on all, and is what every later call
//              gives. Such an error is also a call out of turn, FailedPrecondition, and a trainer
//              that goes before its end, Cancelled. Ranks of a group hear also of one that fails
//              in Create before it has met them. Processes cannot hear of one that fails before:
//              where no launcher ends them, Create gives DeadlineExceeded that names the ranks that
//              did not come, behind TrainerOptions::connect_timeout; where it is rank 0, at which
//              all meet, NotFound that says that its store cannot be reached, and how often it was
//              tried. For a thread that does not come the others wait as long as the group's
//              timeout says.
// Threads      One at a time.
class Trainer {
 public:
  using Options = TrainerOptions;

  // A call of all ranks; waits. Of processes that a launcher has started, of the ranks of a group,
  // or of one alone. job.steps 0: all epochs of the data. Begins with job.checkpoints.resume or
  // weights, if they are given.
  //
  // Errors       InvalidArgument, on all ranks, for what config, model and data cannot be together,
  //              naming it; those of collectives::Init and of the checkpoint.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(Job job, ModelFactory model,
                                                         TrainingData data,
                                                         const collectives::LaunchInfo& launch_info,
                                                         const Options& options = {});
  // The same with any task, which must outlive the trainer. It does not say how many steps its
  // epochs have: InvalidArgument for a job without any.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(Job job, const Task& task,
                                                         const collectives::LaunchInfo& launch_info,
                                                         const Options& options = {});
  // The same with a communicator that is there, and a job that outlives the trainer. `local_rank`:
  // among those of this host. The context is ContextOf(job, rank, options.watch->recorder()):
  // InvalidArgument without a watch.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const Job& job, const Task& task,
                                                         collectives::Communicator& communicator,
                                                         int local_rank, device::Context& context,
                                                         const Options& options = {});
  ~Trainer();

  // Trains to the end, with evaluations and saves as the job says, and says what ranks used.
  absl::StatusOr<Outcome> Fit();

  // The forward pass of the next micro-batch; false: all steps are made, or the ranks stop. What is
  // due between two steps comes first. With a pipeline, FailedPrecondition before anything begins:
  // its passes go together in a step, by Fit.
  absl::StatusOr<bool> Batch();
  // Its backward pass.
  absl::Status Backward();
  // The update, if that was the step's last micro-batch.
  absl::Status Step();
  // Waits; the last evaluation and save, as at the end of Fit.
  absl::StatusOr<Outcome> Finish();

  // Between two steps; wait. The mean loss over the held-out data, in nats.
  absl::StatusOr<double> Evaluate();
  // To job.checkpoints.save.
  absl::Status Save();
  // Goes on from a checkpoint of this training, of any number of ranks and any stage.
  absl::Status Load(const std::string& folder);

  // Between two steps, before the first or behind the last: for what else is to be done with a
  // model of Create's, such as reading weights of others into it or writing them
  // (models/weights.h, models/adapter_files.h). All ranks' `use` makes the same calls; waits for
  // the steps before it. FailedPrecondition for another task, and before the end with replicas.
  //
  // With a pipeline `model` tells of the whole model, but has passes for this rank's stage alone,
  // and `zero` has that stage's parameters, numbered anew: their numbers in the model are
  // models::NumbersIn(model, zero.plan(), /*is_shared=*/true). `ranks` are those of all stages.
  // Of tensor ranks both have this rank's part of each parameter (models::Model::cut).
  using UseModel = absl::FunctionRef<absl::Status(models::Model& model, zero::ZeroOptimizer& zero,
                                                  collectives::Communicator& ranks)>;
  absl::Status WithModel(UseModel use);

  // Steps that are made or enqueued.
  int64_t step() const { return ranks_ == nullptr ? 0 : ranks_->step(); }
  int rank() const { return communicator_->rank(); }

 private:
  explicit Trainer(const Options& options) : options_(options) {}

  // The job, on this rank's device.
  absl::Status Own(Job job, const collectives::LaunchInfo& launch_info);
  // The same with the steps of a model's data, and the task of these.
  absl::Status Own(Job job, ModelFactory model, TrainingData data,
                   const collectives::LaunchInfo& launch_info);
  absl::Status Connect(const collectives::LaunchInfo& launch_info);
  // This rank's context and communicator.
  absl::Status Meet(const collectives::LaunchInfo& launch_info);
  void UseWatch(Watch& watch);
  absl::Status Prepare(int local_rank);
  // Behind the last step.
  absl::StatusOr<Outcome> Leave(bool interrupted);
  // Ends the training on all ranks if it is an error; gives that where it began.
  absl::Status Told(const absl::Status& status);
  // Makes the call, unless the training has ended by an error.
  absl::Status Call(absl::FunctionRef<absl::Status()> call);
  Observer* observer() { return rank() == 0 ? &observers_ : &watch_->trace_observer(); }
  const std::atomic<bool>& stop() const {
    return options_.stop == nullptr ? kNeverStops : *options_.stop;
  }

  const Options options_;
  static const std::atomic<bool> kNeverStops;

  // In this order they end one after the other, from the last one on. What Create has made:
  std::unique_ptr<Job> own_job_;
  std::unique_ptr<const Task> own_task_;
  std::unique_ptr<Watch> own_watch_;
  std::unique_ptr<device::Context> own_context_;
  std::unique_ptr<collectives::Communicator> own_communicator_;
  const Job* job_ = nullptr;
  const Task* task_ = nullptr;
  Watch* watch_ = nullptr;
  Observers observers_;
  device::Context* context_ = nullptr;
  collectives::Communicator* communicator_ = nullptr;
  // Its communicators outlive what is enqueued.
  std::unique_ptr<parallel::Grid> grid_;
  std::unique_ptr<device::Stream> compute_;
  // The job, where its config leaves something to the cost model.
  std::optional<Job> chosen_;
  std::unique_ptr<RankTrainer> ranks_;
  bool has_ended_ = false;
  absl::Status error_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TRAINER_H_
