#ifndef BRIGADE_COLLECTIVES_ENGINES_THREADS_GROUP_STATE_H_
#define BRIGADE_COLLECTIVES_ENGINES_THREADS_GROUP_STATE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/algorithms/program.h"
#include "brigade/collectives/engines/threads/rendezvous.h"
#include "brigade/collectives/engines/threads/stream_monitor.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/periodic_thread.h"
#include "brigade/kernels/reduce/reduce_math.h"

namespace brigade::collectives {

// What the ranks of a ThreadGroup share. Members' events and scratch are touched by the rank that
// arrives last.
class GroupState {
 public:
  explicit GroupState(const ThreadGroup::Options& options);

  const ThreadGroup::Options& options() const { return options_; }

  absl::Status Join(int rank, device::Context& context);
  void Leave(int rank);
  absl::Status Reserve(int rank, const CollectiveSignature& signature);
  absl::Status Run(int rank, const Collective& collective, device::Stream& stream);
  absl::Status AllGatherHost(int rank, const Fingerprint& fingerprint,
                             absl::Span<const int64_t> values, absl::Span<int64_t> all);
  // What the ranks `members` of this group share in a new one. Each of them calls this once; the
  // group belongs to those who have got it, and this one keeps it only for those that are still to
  // come.
  std::shared_ptr<GroupState> JoinSubgroup(absl::Span<const int> members, uint64_t generation);
  void Fail(const absl::Status& error);
  absl::Status status() const;
  device::Context& context(int rank) { return *members_[static_cast<size_t>(rank)].context; }
  int64_t sent_bytes(int from, int to) const {
    return members_[static_cast<size_t>(from)].sent[static_cast<size_t>(to)].load();
  }

 private:
  using Arrivals = absl::Span<const Rendezvous::Arrival>;

  struct Member {
    device::Context* context = nullptr;
    // Recorded at the ends of stages, by turns.
    std::unique_ptr<device::Event> reached[2];
    device::Buffer scratch;
    std::array<std::atomic<int64_t>, kernels::kMaxReduceArrays> sent = {};
  };

  struct Subgroup {
    std::shared_ptr<GroupState> state;
    size_t to_come = 0;
  };

  absl::Status Meet(int rank, int partner, const Rendezvous::Arrival& arrival, Rendezvous::Act act);
  absl::StatusOr<StreamMonitor::Entry*> Begin(uint64_t ranks, Arrivals arrivals);
  absl::Status Enqueue(Arrivals arrivals);
  absl::Status EnqueueSend(int sender, int receiver, Arrivals arrivals);
  absl::Status EnqueueInstruction(const Instruction& instruction, int rank, Arrivals arrivals);

  const ThreadGroup::Options options_;
  Rendezvous rendezvous_;
  std::vector<Member> members_;
  StreamMonitor monitor_;
  Program program_;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;

  mutable device::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // Of all ranks; none before the first has joined.
  std::optional<device::Device> device_ ABSL_GUARDED_BY(mutex_);
  // For which a rank is still to come.
  std::map<std::string, Subgroup> subgroups_ ABSL_GUARDED_BY(mutex_);

  // Asks monitor_. Last: it uses the others.
  std::unique_ptr<device::PeriodicThread> watchdog_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_THREADS_GROUP_STATE_H_
