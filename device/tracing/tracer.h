#ifndef BRIGADE_DEVICE_TRACING_TRACER_H_
#define BRIGADE_DEVICE_TRACING_TRACER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/string_view.h"

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
};

struct TracedStream {
  absl::string_view context;
  absl::string_view stream;
  std::vector<TracedOperation> operations;  // in order of time; none overlaps another
  int64_t dropped = 0;                      // operations that are missing here
};

// Records when each operation of the streams of some contexts began and ended: those whose
// ContextOptions name it.
//
// Contract     docs/device.md, rules 30 to 32.
// Lifetime     Must outlive the contexts and all that they made. Names that it gives out are good as
//              long as it lives.
// Allocation   None by streams in steady state. Each stream has room for `capacity` operations; what
//              does not fit until the next Take is dropped, and counted.
// Threads      Safe from any thread.
class Tracer {
 public:
  explicit Tracer(size_t capacity = 64 * 1024);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Hands over what has ended since the last call, of each stream that there has been, in the order
  // in which they were made. Does not wait.
  std::vector<TracedStream> Take();

  // For contexts: another stream.
  internal::TraceBuffer& AddStream(absl::string_view context, absl::string_view stream);

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<internal::TraceBuffer>> trace_buffers_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_TRACING_TRACER_H_
