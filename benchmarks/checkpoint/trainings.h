#ifndef BRIGADE_BENCHMARKS_CHECKPOINT_TRAININGS_H_
#define BRIGADE_BENCHMARKS_CHECKPOINT_TRAININGS_H_

// Ranks on threads of their own with a state to save, and what they do with it in turn.

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/benchmarks/checkpoint/plain_files.h"
#include "brigade/benchmarks/common/turns.h"
#include "brigade/benchmarks/zero/synthetic_model.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::benchmarks {

// One rank of a synthetic model in ZeRO-2, bfloat16 and AdamW: fp32 masters and two moments, of
// values that no file system packs.
class Training {
 public:
  // A call of all ranks.
  absl::Status Create(int rank, collectives::ThreadGroup& group, const SyntheticModel& model);

  int rank() const { return communicator_->rank(); }
  int ranks() const { return communicator_->size(); }
  zero::ZeroOptimizer& zero() { return *zero_; }
  collectives::Communicator& communicator() { return *communicator_; }
  device::Context& context() { return *context_; }

  // A copy of what this rank owns: an array of a bucket each.
  Memory Own() const;
  // A step, whole.
  absl::Status Step();
  absl::Status Synchronize();

 private:
  absl::Status CopyOwn();

  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<collectives::Communicator> communicator_;
  std::unique_ptr<SyntheticTransformer> transformer_;
  std::unique_ptr<zero::ZeroOptimizer> zero_;
  std::vector<device::Buffer> own_;
};

// TakeTurns of turns that each rank makes of a training of its own.
using CreateTrainingTurns = std::function<absl::StatusOr<std::vector<Turn>>(Training&)>;
absl::StatusOr<std::vector<TurnTimes>> TakeTurns(int ranks, const SyntheticModel& model, int rounds,
                                                 const CreateTrainingTurns& create);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_CHECKPOINT_TRAININGS_H_
