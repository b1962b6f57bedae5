#ifndef BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_TRANSPORT_H_
#define BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace brigade::collectives {

// One rank's end of a group whose members exchange messages. Algorithms are written on it.
//
// Order        Messages from one rank to another arrive in the order in which they were sent.
// Buffering    None is promised: a message may stay in the sender's memory until its receiver
//              expects it. So call Expect before Await and Flush, on every rank.
// Deadline     Await and Flush wait at most a timeout, chosen at creation, from when they are
//              called.
// Errors       InvalidArgument and FailedPrecondition for a wrong call, which changes nothing. All
//              others are final, reach every rank, and name the rank where the trouble began:
//              Unavailable if it is gone, DeadlineExceeded if it is silent. On ranks that were told
//              so by rank N the message ends in " (reported by rank N)".
// Threads      One thread at a time; Abort, status and sent_bytes from any thread, at any time.
// Destruction  Tells the others that this rank has left. They may go on; one that still needs this
//              rank gets Unavailable. What was not flushed may be lost.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // How errors name a group that is a part of another one, and numbers its ranks itself: "group of
  // ranks 2 and 3". "" for the whole.
  virtual std::string name() const { return ""; }

  // Starts sending. `data` must stay as it is until Flush returns, after an error until
  // destruction. 0 bytes are a message too.
  absl::Status Send(int to, const void* data, int64_t bytes) {
    return SendUpTo(to, data, bytes, bytes);
  }

  // The same of a message that its receiver expects with `capacity` bytes, at least `bytes`: for
  // one of which the receiver cannot know how long it is. What it has behind them stays as it was.
  virtual absl::Status SendUpTo(int to, const void* data, int64_t bytes, int64_t capacity) = 0;

  // Announces where the next message of `from` goes; it has exactly `bytes` bytes, or was sent with
  // that capacity. `data` belongs to the transport until the matching Await returns, after an error
  // until destruction.
  virtual absl::Status Expect(int from, void* data, int64_t bytes) = 0;

  // Waits for the oldest expected message of `from`. FailedPrecondition if none is expected.
  virtual absl::Status Await(int from) = 0;

  // Waits until everything sent has left its memory, not until it has arrived.
  virtual absl::Status Flush() = 0;

  // Ends all waits, of this rank at once and of the others by a message, with this error. The first
  // error wins, so calling it twice is safe. An OK `reason` counts as Cancelled.
  virtual void Abort(const absl::Status& reason) = 0;

  // OK, or the first final error, which every call from then on returns.
  virtual absl::Status status() const = 0;

  // What an error at a deadline says about each rank that waits: "rank 1 calls barrier() as its
  // call 7", or "" for nothing. Set before the first message; called from any thread. A transport
  // may ignore it.
  virtual void SetActivity(std::function<std::string()>) {}

  // Payload bytes given to Send for this rank so far; 0 for a rank outside the group.
  virtual int64_t sent_bytes(int to) const = 0;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_TRANSPORT_H_
