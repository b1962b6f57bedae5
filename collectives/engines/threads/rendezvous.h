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

// Where host threads, one for each member, meet again and again. The last to arrive acts for all.
//
// Allocation   None after construction.
// Threads      Each member's calls from one thread at a time; Break from any thread.
class Rendezvous {
 public:
  // What a member brings; good until Meet returns on all members.
  struct Arrival {
    Collective collective;
    device::Stream* stream = nullptr;
    absl::Span<const int64_t> values;  // of a host exchange
  };

  explicit Rendezvous(int members);

  // Returns what act(arrivals), called once by the last to arrive, has returned; or the error of Break.
  // DeadlineExceeded, after which the rendezvous is broken, if somebody is missing `timeout` after the call:
  // late(absent) makes the message.
  absl::Status Meet(int member, const Arrival& arrival, std::chrono::nanoseconds timeout,
                    absl::FunctionRef<absl::Status(absl::Span<const Arrival>)> act,
                    absl::FunctionRef<absl::Status(absl::Span<const int> absent)> late);

  // Everyone who waits, and whoever comes later, gets `error`; the first one stays.
  void Break(const absl::Status& error);

 private:
  bool IsOver(uint64_t round) const { return round_.load(std::memory_order_acquire) != round; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Arrival> arrivals_;
  std::vector<char> arrived_;
  size_t count_ = 0;
  std::atomic<uint64_t> round_{0};
  absl::Status result_;  // of the last round; the next one cannot end before all have read it
  absl::Status broken_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_THREADS_RENDEZVOUS_H_
