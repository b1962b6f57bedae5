#ifndef BRIGADE_COLLECTIVES_ENGINES_THREADS_RENDEZVOUS_H_
#define BRIGADE_COLLECTIVES_ENGINES_THREADS_RENDEZVOUS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// The place where the threads of a group's ranks wait for each other: all of them, or two.
//
// Errors       The first one is final: every rank that waits, and every later call, gets it.
//              InvalidArgument that names two ranks and their calls, if the fingerprints of those who meet differ, or
//              if ranks wait for each other in a circle (rank 0 sends to rank 1, which waits for all in a barrier).
//              DeadlineExceeded that names the ranks that wait for nobody and for which this one has waited too long.
// Allocation   None after construction, but for errors.
// Threads      Each rank's calls from one thread at a time; Break from any thread.
class Rendezvous {
 public:
  // What a rank brings. All that it points to must stay until Meet returns.
  struct Arrival {
    Fingerprint fingerprint;
    const Collective* collective = nullptr;  // of a call on a stream
    device::Stream* stream = nullptr;
    absl::Span<const int64_t> values;  // of a call on the host
    absl::Span<int64_t> all;
  };
  using Act = absl::FunctionRef<absl::Status(absl::Span<const Arrival> arrivals)>;

  static constexpr int kAll = -1;

  explicit Rendezvous(int size);  // 1 to 64

  // Waits for all ranks, or for the one rank `partner` that gives this one as its partner. The last to arrive calls
  // act(arrivals), by rank, with a lock held; all of them return what that has returned.
  absl::Status Meet(int rank, int partner, const Arrival& arrival, std::chrono::nanoseconds timeout,
                    Act act);

  void Break(const absl::Status& error);

 private:
  using Ranks = uint64_t;  // a bit for each

  struct Member {
    int partner = kAll;
    std::atomic<bool> waits{false};
    std::condition_variable changed;
    absl::Status result;  // of the last time; the next one cannot end before this rank has read it
  };

  static Ranks Only(int rank) { return Ranks{1} << rank; }
  int size() const { return static_cast<int>(members_.size()); }
  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }

  // All with mutex_ held.
  absl::Status Compare(Ranks ranks) const;
  Ranks MissingFor(int rank) const;
  Ranks WaitedForBy(int rank) const;
  absl::Status FindCircle(int rank) const;
  absl::Status LateError(int rank, std::chrono::nanoseconds timeout) const;
  void BreakLocked(const absl::Status& error);

  const Ranks everybody_;
  std::mutex mutex_;
  std::vector<Arrival> arrivals_;  // [rank]
  std::vector<Member> members_;    // [rank]
  Ranks for_all_ = 0;              // ranks that wait for all
  Ranks for_one_ = 0;              // ranks that wait for their partner
  absl::Status broken_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_THREADS_RENDEZVOUS_H_
