#ifndef BRIGADE_DEVICE_TRACING_TRACE_BUFFER_H_
#define BRIGADE_DEVICE_TRACING_TRACE_BUFFER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/node_hash_set.h"
#include "absl/strings/string_view.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/tracing/tracer.h"

namespace brigade::device::internal {

inline int64_t SteadyNs() {
  const auto since_epoch = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
}

// The operations of one stream that Tracer::Take has not returned yet.
//
// Threads      Safe from any thread.
class TraceBuffer {
 public:
  TraceBuffer(absl::string_view context, absl::string_view stream, size_t capacity);

  // In order of time. `name` is copied when it is new to this stream.
  void Add(TracedOperation::Kind kind, absl::string_view name, int64_t begin_ns, int64_t end_ns,
           int64_t bytes);
  void Drop(int64_t operations);

  TracedStream Take();

 private:
  const std::string context_;
  const std::string stream_;
  const size_t capacity_;

  Mutex mutex_;
  // At stable addresses, which operations_ and the users of Take refer to.
  absl::node_hash_set<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::vector<TracedOperation> operations_ ABSL_GUARDED_BY(mutex_);
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Adds the operation that runs during its lifetime; with a null buffer it costs two branches.
class TraceScope {
 public:
  TraceScope(TraceBuffer* trace_buffer, TracedOperation::Kind kind, absl::string_view name,
             int64_t bytes = 0)
      : trace_buffer_(trace_buffer), kind_(kind), name_(name), bytes_(bytes) {
    if (trace_buffer_ != nullptr) begin_ns_ = SteadyNs();
  }
  ~TraceScope() {
    if (trace_buffer_ != nullptr) {
      trace_buffer_->Add(kind_, name_, begin_ns_, SteadyNs(), bytes_);
    }
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceBuffer* const trace_buffer_;
  const TracedOperation::Kind kind_;
  const absl::string_view name_;
  const int64_t bytes_;
  int64_t begin_ns_ = 0;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_TRACING_TRACE_BUFFER_H_
