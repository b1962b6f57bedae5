#ifndef BRIGADE_COLLECTIVES_ENGINES_THREADS_STREAM_MONITOR_H_
#define BRIGADE_COLLECTIVES_ENGINES_THREADS_STREAM_MONITOR_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives {

// Collectives that are enqueued on all their ranks' streams and that not all of these streams have
// reached.
//
// Limit        Starts when the first look finds that a stream has reached a collective: as long as
//              all are busy with work of their own, nobody waits.
// Allocation   None in steady state: as many entries as were ever on their way at once.
// Threads      Next and Watch from one at a time; Look from any.
class StreamMonitor {
 public:
  struct Entry {
    Fingerprint fingerprint;
    // A bit for each rank that takes part.
    uint64_t ranks = 0;
    // [rank], where its stream reaches the collective.
    std::vector<std::unique_ptr<device::Event>> begins;
    // Until the first look that finds a stream there, the clock's last time.
    std::chrono::steady_clock::time_point deadline;
  };

  StreamMonitor(int size, absl::Duration limit) : size_(size), limit_(limit) {}

  // An entry for the next collective. The caller records its events, which are of `context`, and
  // then calls Watch; or it gives up, and the next call gets the same entry.
  absl::StatusOr<Entry*> Next(device::Context& context);
  void Watch();

  // DeadlineExceeded that names the streams that have not reached a collective within the limit,
  // and it.
  absl::Status Look();

 private:
  uint64_t Reached(const Entry& entry) const;
  void Reclaim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int size_;
  const absl::Duration limit_;
  // The entry between Next and Watch, if any.
  std::list<Entry> next_;

  device::Mutex mutex_;
  std::list<Entry> pending_ ABSL_GUARDED_BY(mutex_), free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_THREADS_STREAM_MONITOR_H_
