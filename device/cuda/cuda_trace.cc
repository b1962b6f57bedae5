#include "brigade/device/cuda/cuda_trace.h"

#include <cmath>

#include "brigade/device/cuda/cuda_relaxed_capture.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/device/status_macros.h"

namespace brigade::device::internal {
namespace {

// Whether a CUDA call succeeded; if not, its error is cleared. Tracing reports no errors of its
// own: those of the stream are reported by its work.
bool Done(cudaError_t answer) {
  if (answer == cudaSuccess) return true;
  static_cast<void>(cudaGetLastError());
  return false;
}

// Work that goes into a graph does not run now, and events recorded there have no time.
bool Captures(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  return !Done(cudaStreamIsCapturing(stream, &capture)) || capture != cudaStreamCaptureStatusNone;
}

// 0 if CUDA cannot tell, because the device has failed.
int64_t NsBetween(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0.0f;
  if (!Done(cudaEventElapsedTime(&milliseconds, from, to))) return 0;
  return std::llround(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaTrace>> CudaTrace::Create(TraceBuffer& trace_buffer,
                                                             cudaStream_t stream,
                                                             cudaStream_t idle) {
  std::unique_ptr<CudaTrace> trace(new CudaTrace(trace_buffer, stream));
  BRIGADE_RETURN_IF_ERROR(trace->CreateEvents(idle));
  return trace;
}

absl::Status CudaTrace::CreateEvents(cudaStream_t idle) {
  const CudaRelaxedCapture relaxed;
  MutexLock lock(mutex_);
  for (TimedOperation& timed : ring_) {
    for (cudaEvent_t* const event : {&timed.begin, &timed.end}) {
      BRIGADE_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(event), "cudaEventCreate"));
    }
  }
  const cudaEvent_t before_all = ring_.back().end;
  BRIGADE_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(before_all, idle), "cudaEventRecord"));
  BRIGADE_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(before_all), "cudaEventSynchronize"));
  last_end_ns_ = SteadyNs();
  return absl::OkStatus();
}

CudaTrace::~CudaTrace() {
  Collect();
  trace_buffer_.Drop(static_cast<int64_t>(unfinished_));
  for (const TimedOperation& timed : ring_) {
    for (const cudaEvent_t event : {timed.begin, timed.end}) {
      if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
    }
  }
}

absl::Status CudaTrace::Time(TracedOperation::Kind kind, absl::string_view name, int64_t bytes,
                             absl::FunctionRef<absl::Status()> enqueue) {
  MutexLock lock(mutex_);
  if (Captures(stream_)) {
    trace_buffer_.Drop(1);
    return enqueue();
  }
  CollectLocked();
  TimedOperation& timed = ring_[(first_ + unfinished_) % kRing];
  const bool began = unfinished_ < kRing - 1 && Done(cudaEventRecord(timed.begin, stream_));
  absl::Status status = enqueue();
  if (!status.ok()) return status;
  // A wait may have made the stream join a capture.
  if (!began || Captures(stream_) || !Done(cudaEventRecord(timed.end, stream_))) {
    trace_buffer_.Drop(1);
    return status;
  }
  timed.kind = kind;
  timed.name.assign(name.data(), name.size());
  timed.bytes = bytes;
  ++unfinished_;
  return status;
}

void CudaTrace::Collect() {
  MutexLock lock(mutex_);
  CollectLocked();
}

void CudaTrace::CollectLocked() {
  const CudaRelaxedCapture relaxed;
  while (unfinished_ > 0 && Done(cudaEventQuery(ring_[first_].end))) {
    const TimedOperation& timed = ring_[first_];
    const cudaEvent_t last_end = ring_[(first_ + kRing - 1) % kRing].end;
    const int64_t begin_ns = last_end_ns_ + NsBetween(last_end, timed.begin);
    const int64_t end_ns = begin_ns + NsBetween(timed.begin, timed.end);
    trace_buffer_.Add(timed.kind, timed.name, begin_ns, end_ns, timed.bytes);
    last_end_ns_ = end_ns;
    first_ = (first_ + 1) % kRing;
    --unfinished_;
  }
}

}  // namespace brigade::device::internal
