#ifndef BRIGADE_DEVICE_INTERNAL_BACKEND_H_
#define BRIGADE_DEVICE_INTERNAL_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/device.h"
#include "brigade/device/internal/event_record.h"
#include "brigade/device/internal/task.h"
#include "brigade/device/race_checker/vector_clock.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device {
class RaceChecker;
}  // namespace brigade::device

namespace brigade::device::internal {

class TraceBuffer;

// What a kind of device implements. stream.cc, event.cc and context_state.cc check the arguments
// and tell the race checker before they call it.

// How one stream of the CPU learns, in order, that records of a device's events are reached.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
};

class EventState {
 public:
  explicit EventState(Device device) : device(device) {}
  virtual ~EventState() = default;

  // Releases the mutex, then waits for the latest record and returns the error that it carries.
  virtual absl::Status Synchronize() ABSL_UNLOCK_FUNCTION(mutex) = 0;
  virtual absl::StatusOr<bool> Query() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;

  // What a stream of the CPU waits for instead of the latest record. `arrivals` is that stream's,
  // for events of this one's device; null until one needs it. FailedPrecondition for what is in a
  // capture.
  virtual absl::StatusOr<EventRecordRef> Follow(std::unique_ptr<Arrivals>& arrivals)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;

  const Device device;
  Mutex mutex;
  bool recorded ABSL_GUARDED_BY(mutex) = false;
  // The checker of the stream that recorded last.
  RaceChecker* checker ABSL_GUARDED_BY(mutex) = nullptr;
  // The clock of the record, in that checker.
  VectorClock clock ABSL_GUARDED_BY(mutex);
};

class StreamState {
 public:
  virtual ~StreamState() = default;

  // `bytes`: that the operation reads and writes, for the trace.
  virtual void Enqueue(absl::string_view operation, int64_t bytes, const TaskType& type, void* work,
                       const void* list, size_t items) = 0;
  virtual absl::Status Launch(absl::string_view operation, int64_t bytes,
                              absl::FunctionRef<absl::Status(void* cuda_stream)> launch) = 0;
  virtual absl::Status Copy(void* destination, const void* source, int64_t bytes) = 0;
  virtual absl::Status FillBytes(void* destination, uint8_t value, int64_t bytes) = 0;

  virtual absl::Status Record(EventState& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(event.mutex) = 0;
  virtual absl::Status Wait(EventState& event, absl::string_view event_name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(event.mutex) = 0;
  // Whether Wait makes the host wait for the event, because this stream cannot.
  virtual bool WaitsOnHost(const EventState&) const { return false; }

  // Blocks until all that was enqueued before the call has ended. True if some of it had not. What
  // is being captured does not run, and is not waited for.
  virtual bool Drain() = 0;

  // The capture into a graph that the stream is in, by a number that no other capture of the
  // process has; 0: none.
  virtual uint64_t capture_id() const { return 0; }

  virtual absl::Status error() const = 0;
  virtual void ClearError() = 0;

  // Finishes and ends a stream of our own, after which only error() is legal; a borrowed one is
  // left alone.
  virtual void Close() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // `bytes` > 0. An error says only why: ContextState adds the context, the name and the size.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* data, int64_t bytes) = 0;
  // Memory of the host that copies reach without the host's help. On the CPU all memory is.
  virtual absl::StatusOr<void*> AllocateHost(int64_t bytes) { return Allocate(bytes); }
  virtual void FreeHost(void* data, int64_t bytes) { Free(data, bytes); }
  // Tells the device's tools what an allocation is called.
  virtual void Name(void*, const std::string&) {}
  // Returns when done.
  virtual absl::Status FillBytes(void* data, uint8_t value, int64_t bytes) = 0;

  // `label` names the stream in messages: stream "compute" of "rank 0". The operations that it runs
  // are added to `trace_buffer` unless that is null.
  virtual absl::StatusOr<std::shared_ptr<StreamState>> CreateStream(std::string label,
                                                                    TraceBuffer* trace_buffer) = 0;
  virtual absl::StatusOr<std::shared_ptr<StreamState>> BorrowStream(void* cuda_stream,
                                                                    std::string label,
                                                                    TraceBuffer* trace_buffer) = 0;
  virtual absl::StatusOr<std::unique_ptr<EventState>> CreateEvent() = 0;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_INTERNAL_BACKEND_H_
