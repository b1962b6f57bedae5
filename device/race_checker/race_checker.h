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

namespace brigade::device {

// Two operations that touch the same bytes, at least one writing, which nothing orders.
struct Race {
  struct Side {
    std::string operation;
    std::string stream;   // "a host thread" for a thread's own access
    std::string context;  // empty for a host thread
    bool write = false;

    friend bool operator==(const Side&, const Side&) = default;
    friend auto operator<=>(const Side&, const Side&) = default;
  };
  Side first, second;  // in ascending order of Side, which no timing changes
  std::string message;
};

// Finds unordered conflicting accesses by vector clocks: it follows who knows that what is over,
// not when things happen, so it finds a forgotten wait on every run, also on those that went well.
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

  // The one that the contexts of this process share, so that ranks are checked against each other.
  static RaceChecker& Default();

  std::vector<Race> reports() const;
  int64_t reports_dropped() const;  // races beyond those kept
  void ClearReports();              // also forgets which pairs were reported

  // Host-to-host order. What the releasing thread knew is known to the acquiring one from then on.
  // The clock is a value: it travels with the message, or is joined into one that a mutex guards (a
  // barrier joins all arrivals, and each leaver acquires the result).
  VectorClock HostRelease();
  void HostAcquire(const VectorClock& clock);

  // This thread reads or writes memory itself, now. FailedPrecondition with the message if that is
  // a race.
  absl::Status HostRead(absl::string_view operation, const void* data, int64_t bytes);
  absl::Status HostWrite(absl::string_view operation, void* data, int64_t bytes);

  // How many pieces of memory with a history of their own, and how many actors, are followed now.
  int64_t intervals() const;
  int64_t actors() const;

  // What follows is for Stream, Event, Context and Buffer.

  using ActorId = int;

  // Streams borrowed from the same native one are the same actor, whenever they live.
  ActorId AddStream(absl::string_view stream, absl::string_view context);
  ActorId AddBorrowedStream(absl::string_view stream, absl::string_view context, int device,
                            const void* native);
  void RemoveStream(ActorId stream);  // not for a borrowed one

  // FailedPrecondition with the first message if `operation` is part of a race. The operation
  // counts as enqueued in any case.
  absl::Status Enqueue(ActorId stream, const Operation& operation);
  void Record(ActorId stream, VectorClock& event);
  void Wait(ActorId stream, const VectorClock& event);
  VectorClock Now(ActorId stream) const;  // a host thread that waited for the stream acquires it

  // Memory is born, or lent, or goes. The going of owned memory is a write by this thread.
  void AddMemory(const void* data, int64_t bytes, absl::string_view name, bool owned);
  void RemoveMemory(const void* data, int64_t bytes, bool owned);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_RACE_CHECKER_RACE_CHECKER_H_
