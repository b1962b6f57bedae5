#ifndef BRIGADE_COLLECTIVES_ENGINES_THREADS_RENDEZVOUS_H_
#define BRIGADE_COLLECTIVES_ENGINES_THREADS_RENDEZVOUS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/stream.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives {

// The place where the threads of a group's ranks wait for each other: all of them, or two.
//
// Errors       The first one is final: every rank that waits, and every later call, gets it.
//              InvalidArgument that names two ranks and their calls, if the fingerprints of those
//              who meet differ, or if ranks wait for each other in a circle (rank 0 sends to rank
//              1, which waits for all in a barrier). DeadlineExceeded that names the ranks that
//              wait for nobody and for which this one has waited too long. Unavailable for a rank
//              that has left, once one waits for it: those who do without it go on.
// Allocation   None after construction, but for errors.
// Threads      Each rank's calls from one thread at a time; Leave and Break from any thread.
class Rendezvous {
 public:
  // What a rank brings. All that it points to must stay until Meet returns.
  struct Arrival {
    Fingerprint fingerprint;
    // Of a call on a stream.
    const Collective* collective = nullptr;
    device::Stream* stream = nullptr;
    // Of a call on the host.
    absl::Span<const int64_t> values;
    absl::Span<int64_t> all;
  };
  using Act = absl::FunctionRef<absl::Status(absl::Span<const Arrival> arrivals)>;

  static constexpr int kAll = -1;

  // `size` is 1 to 64.
  explicit Rendezvous(int size);

  // Waits for all ranks, or for the one rank `partner` that gives this one as its partner. The last
  // to arrive calls act(arrivals), by rank, with a lock held; all of them return what that has
  // returned.
  absl::Status Meet(int rank, int partner, const Arrival& arrival, absl::Duration timeout, Act act);

  // `rank` comes no more.
  void Leave(int rank);
  void Break(const absl::Status& error);

 private:
  // A bit for each rank.
  using Ranks = uint64_t;

  // What a rank sleeps by, once it has arrived.
  struct Sleeper {
    std::atomic<bool> waits{false};
    device::CondVar changed;
  };

  static Ranks Only(int rank) { return Ranks{1} << rank; }

  absl::Status Compare(Ranks ranks) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Ranks MissingFor(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Ranks WaitedForBy(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FindCircle(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LeftError(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LateError(int rank, absl::Duration timeout) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BreakLocked(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Ranks everybody_;
  // By rank.
  std::vector<Sleeper> sleepers_;

  device::Mutex mutex_;
  // By rank.
  std::vector<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
  // By rank.
  std::vector<int> partners_ ABSL_GUARDED_BY(mutex_);
  // [rank], of the last time; the next one cannot end before that rank has read it.
  std::vector<absl::Status> results_ ABSL_GUARDED_BY(mutex_);
  // Ranks that wait for all.
  Ranks for_all_ ABSL_GUARDED_BY(mutex_) = 0;
  // Ranks that wait for their partner.
  Ranks for_one_ ABSL_GUARDED_BY(mutex_) = 0;
  // Ranks that have left.
  Ranks left_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_THREADS_RENDEZVOUS_H_
