#ifndef BRIGADE_DEVICE_TRACING_TRACER_H_
#define BRIGADE_DEVICE_TRACING_TRACER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device {

namespace internal {
class TraceBuffer;
}  // namespace internal

// What a stream did from one moment to another, on the host's steady clock.
struct TracedOperation {
  enum class Kind : uint8_t {
    kWork,  // an operation ran, by its name
    kWait,  // the stream waited for the event of this name
  };

  Kind kind = Kind::kWork;
  absl::string_view name;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  // That the operation has declared to read and to write (operation.h): what it writes counts once,
  // whether it reads it before or not. 0 of waits.
  int64_t bytes = 0;
};

struct TracedStream {
  absl::string_view context;
  absl::string_view stream;
  // In order of time; none overlaps another.
  std::vector<TracedOperation> operations;
  // How many operations are missing, because there was no room for them.
  int64_t dropped = 0;
};

// Records when each operation of a stream began and ended, for the contexts whose ContextOptions
// name the tracer.
//
// Contract     docs/device.md, rules 30 to 32.
// Lifetime     Must outlive the contexts and all that they created. The names in what Take returns
//              are valid as long as the tracer lives.
// Allocation   None by streams in steady state. Each stream has room for `capacity` operations;
//              those that do not fit until the next Take are dropped, and counted.
// Threads      Safe from any thread.
class Tracer {
 public:
  explicit Tracer(size_t capacity = 64 * 1024);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Removes and returns the operations that have ended since the last call, for every stream ever
  // created, in the order of their creation. Does not wait.
  std::vector<TracedStream> Take();

  // For Context: the buffer of another stream.
  internal::TraceBuffer& AddStream(absl::string_view context, absl::string_view stream);

 private:
  const size_t capacity_;
  Mutex mutex_;
  std::vector<std::unique_ptr<internal::TraceBuffer>> trace_buffers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_TRACING_TRACER_H_
