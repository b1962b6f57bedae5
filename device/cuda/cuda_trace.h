#ifndef BRIGADE_DEVICE_CUDA_CUDA_TRACE_H_
#define BRIGADE_DEVICE_CUDA_CUDA_TRACE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/tracing/trace_buffer.h"

namespace brigade::device::internal {

// Times the operations of one CUDA stream by an event before and an event after each, which are
// read once they have completed: the host never waits for them.
//
// Clock        CUDA tells only the time between two events. Each time is therefore the previous
//              time on the stream plus the difference; the first is the host's clock right after
//              the host has waited for an event.
// Threads      Safe from any thread.
class CudaTrace {
 public:
  // Waits for `idle`, a stream of the same device without work. That device is current.
  static absl::StatusOr<std::unique_ptr<CudaTrace>> Create(TraceBuffer& trace_buffer,
                                                           cudaStream_t stream, cudaStream_t idle);
  ~CudaTrace();
  CudaTrace(const CudaTrace&) = delete;
  CudaTrace& operator=(const CudaTrace&) = delete;

  // Calls `enqueue`, which enqueues on the stream, and times that if it succeeds.
  absl::Status Time(TracedOperation::Kind kind, absl::string_view name, int64_t bytes,
                    absl::FunctionRef<absl::Status()> enqueue);

  // Adds the operations that have ended to the trace buffer.
  void Collect();

 private:
  struct TimedOperation {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    TracedOperation::Kind kind = TracedOperation::Kind::kWork;
    // Assigned to again and again, so that its memory is reused.
    std::string name;
    int64_t bytes = 0;
  };

  CudaTrace(TraceBuffer& trace_buffer, cudaStream_t stream)
      : trace_buffer_(trace_buffer), stream_(stream), ring_(kRing) {}

  absl::Status CreateEvents(cudaStream_t idle);
  void CollectLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // 1024: about as many launches as CUDA queues before it makes the host wait.
  static constexpr size_t kRing = 1024;

  TraceBuffer& trace_buffer_;
  const cudaStream_t stream_;

  Mutex mutex_;
  std::vector<TimedOperation> ring_ ABSL_GUARDED_BY(mutex_);
  // The oldest operation that has not ended.
  size_t first_ ABSL_GUARDED_BY(mutex_) = 0;
  // At most kRing - 1: the end of the operation before the first is still needed.
  size_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_end_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CUDA_CUDA_TRACE_H_
