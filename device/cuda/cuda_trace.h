#ifndef BRIGADE_DEVICE_CUDA_CUDA_TRACE_H_
#define BRIGADE_DEVICE_CUDA_CUDA_TRACE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/tracing/trace_buffer.h"

namespace brigade::device::internal {

// Times what one CUDA stream runs, by an event before and an event after it, which are read once CUDA has
// passed them: the host never waits for them.
//
// Clock        CUDA tells only the time from one event to another. So each time is the one before it, on the
//              stream, and what passed since; the first is that of an event which the host waited for.
// Threads      Safe from any thread.
class CudaTrace {
 public:
  // Waits for `idle`, a stream of the same device with nothing to do. That device is current.
  static absl::StatusOr<std::unique_ptr<CudaTrace>> Create(TraceBuffer& trace_buffer,
                                                           cudaStream_t stream, cudaStream_t idle);
  ~CudaTrace();
  CudaTrace(const CudaTrace&) = delete;
  CudaTrace& operator=(const CudaTrace&) = delete;

  // Calls `enqueue`, which enqueues on the stream, and times that if it succeeds.
  absl::Status Time(TracedOperation::Kind kind, absl::string_view name,
                    absl::FunctionRef<absl::Status()> enqueue);

  // Adds to the trace_buffer what has ended.
  void Collect();

 private:
  struct TimedOperation {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    TracedOperation::Kind kind = TracedOperation::Kind::kWork;
    std::string name;  // its memory is used again
  };

  CudaTrace(TraceBuffer& trace_buffer, cudaStream_t stream)
      : trace_buffer_(trace_buffer), stream_(stream), ring_(kRing) {}

  absl::Status MakeEvents(cudaStream_t idle);
  void CollectLocked();

  // 1024: about as many launches as CUDA queues before it makes the host wait.
  static constexpr size_t kRing = 1024;

  TraceBuffer& trace_buffer_;
  const cudaStream_t stream_;

  std::mutex mutex_;
  std::vector<TimedOperation> ring_;
  size_t first_ = 0;       // the oldest that has not ended
  size_t unfinished_ = 0;  // at most kRing - 1: the end before the first is still needed
  int64_t last_end_ns_ = 0;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CUDA_CUDA_TRACE_H_
