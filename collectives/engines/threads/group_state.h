#ifndef BRIGADE_COLLECTIVES_ENGINES_THREADS_GROUP_STATE_H_
#define BRIGADE_COLLECTIVES_ENGINES_THREADS_GROUP_STATE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/algorithms/program.h"
#include "brigade/collectives/engines/threads/rendezvous.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/kernels/reduce/reduce_math.h"

namespace brigade::collectives {

// What the ranks of a ThreadGroup share. Members' events and scratch are touched by the rank that arrives last.
class GroupState {
 public:
  explicit GroupState(const ThreadGroup::Options& options)
      : options_(options), all_(options.size), members_(static_cast<size_t>(options.size)) {}

  const ThreadGroup::Options& options() const { return options_; }

  absl::Status Join(int rank, device::Context& context);
  void Leave(int rank);
  absl::Status Run(int rank, const Collective& collective, device::Stream& stream);
  absl::Status AllGatherHost(int rank, absl::Span<const int64_t> values, absl::Span<int64_t> all);
  std::shared_ptr<GroupState> Child(absl::Span<const int> members, uint64_t generation);
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
    std::unique_ptr<device::Event> reached[2];  // the end of the last stage, by turns
    device::Buffer scratch;
    std::array<std::atomic<int64_t>, kernels::kMaxReduceArrays> sent = {};
  };

  absl::Status Meet(Rendezvous& rendezvous, int member, const Rendezvous::Arrival& arrival,
                    absl::Span<const int> ranks, absl::FunctionRef<absl::Status(Arrivals)> act);
  Rendezvous& RendezvousOf(int sender, int receiver);
  absl::Status Enqueue(Arrivals arrivals);
  absl::Status EnqueueSend(int sender, int receiver, Arrivals arrivals);
  absl::Status EnqueueInstruction(const Instruction& instruction, int rank, Arrivals arrivals);

  const ThreadGroup::Options options_;
  Rendezvous all_;
  std::vector<Member> members_;
  Program program_;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
  std::vector<int64_t> exchanged_;

  mutable std::mutex mutex_;
  absl::Status status_;
  std::map<std::pair<int, int>, std::unique_ptr<Rendezvous>> pairs_;
  std::map<std::string, std::shared_ptr<GroupState>> children_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_THREADS_GROUP_STATE_H_
