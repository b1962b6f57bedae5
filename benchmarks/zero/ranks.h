#ifndef BRIGADE_BENCHMARKS_ZERO_RANKS_H_
#define BRIGADE_BENCHMARKS_ZERO_RANKS_H_

// Ranks on threads of their own, and the steps and parts of steps that they run in turn.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/zero/synthetic_model.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::benchmarks {

// What takes turns: enqueues its work on this rank, and waits for it.
struct Contestant {
  std::string name;
  std::function<absl::Status()> run;
  // Not timed.
  std::function<absl::Status()> after = {};
};

// Rank 0's times of a contestant's turns, and the processor time of its host thread in them.
struct Times {
  Seconds wall, host;
  // The bytes sent in a turn.
  int64_t sent = 0;
};

// AdamW in bfloat16, a bucket for each unit.
zero::ZeroOptions OptionsOf(const SyntheticModel& model, int stage, bool overlap);

// One rank: what it runs, it runs on one compute thread.
class Rank {
 public:
  absl::Status Create(int rank, collectives::ThreadGroup& group, const SyntheticModel& model,
                      double bytes_per_second);

  absl::StatusOr<zero::ZeroOptimizer*> CreateZero(int stage, bool overlap);

  // The whole step, `steps` times.
  Contestant Step(const std::string& name, zero::ZeroOptimizer* zero, int steps);

  // Parts of it alone, as often. Forward and backward:
  Contestant TransformerAlone(int steps);
  // The plan's collectives: each bucket reduced once, in place; then all gathered, in place, or
  // (stage 3) twice from slices that lie elsewhere.
  Contestant Collectives(const zero::Plan& plan, bool stage3, int steps);
  // What the memory allows for the check of the own slices' gradients and the update of `elements`.
  Contestant Optimizer(const std::string& name, int64_t elements, int steps);

  // Backward up to the end of the last reduction; the rest of the step is not timed.
  Contestant Backward(const std::string& name, zero::ZeroOptimizer* zero);
  Contestant BackwardAlone();

  // For Collectives and Optimizer.
  absl::Status CreateArrays();

  // When, in its processor time, the host thread had enqueued its last turn.
  double host_end() const { return host_end_; }
  // What it has sent in its last Step.
  int64_t sent() const { return sent_; }

 private:
  absl::Status Sync(zero::ZeroOptimizer* zero = nullptr);
  absl::Status ForEachBucket(const zero::Plan& plan, bool reduce, bool from_elsewhere);

  SyntheticModel model_;
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<collectives::Communicator> communicator_;
  std::unique_ptr<SyntheticTransformer> transformer_;
  device::Buffer state_, buffer_;
  std::vector<std::unique_ptr<zero::ZeroOptimizer>> optimizers_;
  double host_end_ = 0;
  int64_t sent_ = 0;
};

// Makes each rank's contestants and lets them take turns: `rounds` rounds, and one before that is
// not counted. A link of `bytes_per_second` lies between the ranks. Ends the process on an error.
using CreateContestants = std::function<absl::StatusOr<std::vector<Contestant>>(Rank&)>;
absl::StatusOr<std::vector<Times>> Compete(int ranks, const SyntheticModel& model,
                                           double bytes_per_second, int rounds,
                                           const CreateContestants& make);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_ZERO_RANKS_H_
