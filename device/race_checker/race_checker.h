#ifndef BRIGADE_DEVICE_RACE_CHECKER_RACE_CHECKER_H_
#define BRIGADE_DEVICE_RACE_CHECKER_RACE_CHECKER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/operation.h"
#include "brigade/device/race_checker/vector_clock.h"
#include "brigade/device/requirements.h"

namespace brigade::device {

// Two operations that access the same bytes, at least one of them writing, in no order.
struct Race {
  struct Side {
    std::string operation;
    // "a host thread" for an access by a thread itself.
    std::string stream;
    // Empty for a host thread.
    std::string context;
    bool write = false;

    friend bool operator==(const Side&, const Side&) = default;
    friend auto operator<=>(const Side&, const Side&) = default;
  };
  // In ascending order of Side, whatever the timing.
  Side first, second;
  std::string message;
};

// Finds unordered conflicting accesses by vector clocks: it follows which actor knows of which
// finished operations, not when they run, so it finds a missing wait on every run, also on those
// whose result is right.
//
// Actors       Every stream and every host thread.
// Order        Enqueue order within a stream; record -> wait; enqueuing thread -> operation;
//              operation -> thread that waited for it; HostRelease -> HostAcquire.
// Reports      Each pair of operations (by name, stream, context and kind of access) and buffer
//              once, also printed to stderr; the first 256 are kept.
// Size         Bounded by the memory followed and the live actors, not by the length of the run.
// Threads      Safe from any thread.
// Contract     docs/device.md, rules 24 to 27.
class RaceChecker {
 public:
  RaceChecker();
  ~RaceChecker();
  RaceChecker(const RaceChecker&) = delete;
  RaceChecker& operator=(const RaceChecker&) = delete;

  // The checker that the contexts of this process share, so that ranks are checked against each
  // other.
  static RaceChecker& Default();

  std::vector<Race> reports() const;
  // How many races came after those kept.
  int64_t reports_dropped() const;
  // Also forgets which pairs were reported.
  void ClearReports();

  // The order of two host threads: whatever is over for the releasing thread is over for the
  // acquiring thread. The clock is a value: it is sent with the message, or joined into a clock
  // that a mutex guards (a barrier joins the clocks of all threads, and each acquires the result).
  VectorClock HostRelease();
  void HostAcquire(const VectorClock& clock);

  // This thread reads or writes memory itself, now. FailedPrecondition with the message if that is
  // a race.
  absl::Status HostRead(absl::string_view operation, const void* data, int64_t bytes);
  absl::Status HostWrite(absl::string_view operation, void* data, int64_t bytes);

  // How many intervals of memory with a history of their own, and how many actors, there are now.
  int64_t intervals() const;
  int64_t actors() const;

  // What follows is for Stream, Event, Context and Buffer.

  using ActorId = int;

  // Streams borrowed from the same native one are the same actor, whenever they live.
  ActorId AddStream(absl::string_view stream, absl::string_view context);
  ActorId AddBorrowedStream(absl::string_view stream, absl::string_view context, int device,
                            const void* native);
  // Not for a borrowed stream.
  void RemoveStream(ActorId stream);

  // FailedPrecondition with the first message if `operation` is part of a race. The operation
  // counts as enqueued in any case.
  absl::Status Enqueue(ActorId stream, const Operation& operation);
  void Record(ActorId stream, VectorClock& event);
  void Wait(ActorId stream, const VectorClock& event);
  // The stream's clock. A host thread that has waited for the stream acquires it.
  VectorClock Now(ActorId stream) const;

  // The beginning and the end of an allocation or of a borrow. The free of owned memory is a write
  // by this thread.
  void AddMemory(const void* data, int64_t bytes, absl::string_view name, bool owned);
  void RemoveMemory(const void* data, int64_t bytes, bool owned);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_RACE_CHECKER_RACE_CHECKER_H_
