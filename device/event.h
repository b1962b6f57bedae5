#ifndef BRIGADE_DEVICE_EVENT_H_
#define BRIGADE_DEVICE_EVENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/device.h"

namespace brigade::device {

namespace internal {
class ContextState;
class EventState;
}  // namespace internal

// A place in a stream: Stream::Record sets it, Stream::Wait and the host wait for it. Created by
// Context::CreateEvent; may be recorded any number of times.
//
// Binding      Everything here is about the latest record at the time of the call. Recording again
//              does not move waits already made.
// Errors       FailedPrecondition, naming the event, if it was never recorded, or if the host asks
//              for a record that a CUDA graph captured. A record that comes
//              after a failure in its stream carries that error to every stream and host thread
//              that waits. See docs/device.md, rules 4, 5, 10 and 11.
// Threads      Safe from any thread. Destroying it leaves waits already made as they are.
class Event {
 public:
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Blocks this thread until the record is reached; returns the error that it carries. Counts as a
  // host wait. FailedPrecondition if called by enqueued work.
  absl::Status Synchronize();

  // Whether the record has been reached, without waiting; the carried error if it has been and
  // carries one.
  absl::StatusOr<bool> Query();

  // The same for one who only watches: the race checker does not take it for a wait, so nothing may
  // be touched because of the answer.
  absl::StatusOr<bool> Peek();

  absl::string_view name() const { return name_; }
  Device device() const { return device_; }

 private:
  friend class Context;
  friend class Stream;

  Event(std::shared_ptr<internal::ContextState> context,
        std::unique_ptr<internal::EventState> state, std::string name);

  std::shared_ptr<internal::ContextState> context_;
  std::unique_ptr<internal::EventState> state_;
  std::string name_;
  Device device_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_EVENT_H_
