#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_IN_FLIGHT_MONITOR_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_IN_FLIGHT_MONITOR_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives {

// The calls of this rank that are enqueued and have not ended, by events before and behind each.
// They run in the order in which they were made.
//
// Deadline     Starts when a call has been seen at the head of its stream: what comes before it may
//              take its time.
// Allocation   None in steady state.
// Threads      Begin and End from one at a time; Look and empty from any.
class InFlightMonitor {
 public:
  InFlightMonitor(device::Context& context, int rank, absl::Duration timeout)
      : context_(context), rank_(rank), timeout_(timeout) {}

  // Marks where the next call begins. A call that is given up needs no End.
  absl::Status Begin(device::Stream& stream);
  absl::Status End(const Collective& collective, device::Stream& stream);

  // Drops calls that have ended. DeadlineExceeded for a call that takes too long, unless
  // has_other_deadline(call), which is asked then; the error of a stream that failed before its
  // call had ended. Both name the call.
  absl::Status Look(absl::FunctionRef<bool(const Fingerprint& call)> has_other_deadline);

  bool empty();

 private:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    std::unique_ptr<device::Event> begin, end;
    Fingerprint collective;
    // The other rank of a send.
    int peer = 0;
    // Until it has begun.
    Clock::time_point deadline = Clock::time_point::max();
  };

  absl::Status Reclaim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  device::Context& context_;
  const int rank_;
  const absl::Duration timeout_;

  device::Mutex mutex_;
  // Between Begin and End.
  Entry next_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> pending_ ABSL_GUARDED_BY(mutex_), free_ ABSL_GUARDED_BY(mutex_);
  // How many were ever made.
  size_t entries_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_IN_FLIGHT_MONITOR_H_
