#ifndef BRIGADE_TRAIN_RANK_CHECKPOINTS_H_
#define BRIGADE_TRAIN_RANK_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/checkpoint/fields.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/context.h"
#include "brigade/train/job.h"
#include "brigade/train/observers/observer.h"
#include "brigade/train/summary.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::train {

// Saves and resumes one rank's training, as Job::checkpoints says. All are calls of all ranks.
class RankCheckpoints {
 public:
  // All but the part must outlive it. `communicator` is of all ranks. With `replica`, its ranks are
  // those of this one's replica: each saves to a folder of its own, "replica-0" and so on in that
  // of the job, and resumes from its own, or where the training that saved had fewer replicas, from
  // that of its number modulo theirs; all from the same step.
  struct Replica {
    int number = 0;
    // Of all replicas.
    collectives::Communicator* all = nullptr;
  };
  // `training`: what else than parameters and options makes a training what it is.
  static absl::StatusOr<std::unique_ptr<RankCheckpoints>> Create(
      const Job& job, const checkpoint::Fields& training, const checkpoint::ModelPart& part,
      zero::ZeroOptimizer& zero, collectives::Communicator& communicator, device::Context& context,
      const std::optional<Replica>& replica = {});

  // Loads what is to be resumed; then no InitializeParameters is needed. Where there is nothing yet
  // in the folder to save to, a new training begins; NotFound for any other without a checkpoint.
  // FailedPrecondition if the folder to save to has checkpoints of later steps, which this training
  // would come to again.
  absl::StatusOr<Start> Resume();
  // Between two steps, `step` of which were made: goes on from a checkpoint. Waits for a save that
  // is under way. Later ones in the folder to save to are set aside if this is one of it; else they
  // are FailedPrecondition, as in Resume.
  absl::StatusOr<Start> GoOnFrom(const std::string& folder, int64_t step, Observer* observer);
  // Between two steps: weights are about to be others than the steps have made them. Waits for a
  // save that is under way.
  absl::Status BeforeChange(int64_t step, Observer* observer);

  // Between two steps, `step` of which are enqueued: tells the end of the last save, and begins one
  // if it is time to. Waits for the one before, if it is still under way. A save that has failed is
  // told, and no error.
  absl::Status SaveIfDue(int64_t step, Observer* observer);
  // The last save, if it was not made: waits. An error if it fails.
  absl::Status SaveAtEnd(int64_t step, Observer* observer);

  // Of page-locked memory, in which saves wait for the disk; 0: nothing is saved.
  int64_t staging_bytes() const;
  // Sets what the saves so far have taken.
  void AddTo(RankSummary& summary) const;

 private:
  RankCheckpoints(const Job& job, const checkpoint::ModelPart& part, zero::ZeroOptimizer& zero,
                  collectives::Communicator& communicator)
      : job_(job),
        checkpoints_(job.checkpoints),
        part_(part),
        zero_(zero),
        communicator_(communicator),
        all_(&communicator) {}

  absl::StatusOr<Start> ResumeNewest();
  absl::StatusOr<Start> Load(const std::string& folder);
  absl::Status CheckNothingLater(int64_t step);
  // The end of a save.
  absl::Status Tell(int64_t step, const absl::StatusOr<checkpoint::SaveReport>& report,
                    Observer* observer);
  // Of the save in flight, if there is one: if it has ended; or when it has, for which Await waits.
  absl::Status TellIfEnded(int64_t step, Observer* observer);
  absl::Status Await(int64_t step, Observer* observer);

  const Job& job_;
  // The job's, with the folders of the replica.
  Checkpoints checkpoints_;
  const checkpoint::ModelPart part_;
  zero::ZeroOptimizer& zero_;
  collectives::Communicator& communicator_;
  // Of all replicas; else the same.
  collectives::Communicator* all_;
  checkpoint::Fields training_;
  // Null: nothing is saved.
  std::unique_ptr<checkpoint::Saver> saver_;
  // Of the state that was saved or loaded last; -1: none.
  int64_t saved_step_ = -1;
  // The end of the last save.
  absl::Status last_;
  RankSummary summary_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_RANK_CHECKPOINTS_H_
