#include "brigade/device/cuda/cuda_stream.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/cuda/cuda_arrivals.h"
#include "brigade/device/cuda/cuda_device_guard.h"
#include "brigade/device/cuda/cuda_flag.h"
#include "brigade/device/cuda/cuda_relaxed_capture.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/device/internal/messages.h"
#include "brigade/device/status_macros.h"

namespace brigade::device::internal {
namespace {

absl::Status Captured() {
  return absl::FailedPreconditionError(
      "the event was recorded in a stream that is captured into a CUDA graph: it has no time");
}

// What a record that has been reached, or whose device has failed, carries.
absl::Status CarriedBy(const EventRecordRef& record) {
  return record && record->finished() ? record->Wait() : absl::OkStatus();
}

// A word for the stream to wait for; null if CUDA's streams cannot wait for any here.
absl::StatusOr<std::shared_ptr<uint32_t>> FlagFor(cudaStream_t idle) {
  BRIGADE_ASSIGN_OR_RETURN(std::shared_ptr<uint32_t> flag, TakeCudaFlag());
  if (!CudaCanWaitForFlags(idle, flag.get())) flag.reset();
  return flag;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventState>> CudaEvent::Create(int ordinal) {
  const CudaDeviceGuard guard(ordinal);
  cudaEvent_t handle = nullptr;
  BRIGADE_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming),
                                     "cudaEventCreateWithFlags"));
  return std::unique_ptr<EventState>(new CudaEvent(ordinal, handle));
}

CudaEvent::~CudaEvent() {
  const CudaDeviceGuard guard(device.ordinal);
  // CUDA keeps the event until pending waits are over; a failure here is a dead device's, reported
  // elsewhere.
  static_cast<void>(cudaEventDestroy(handle_));
}

absl::Status CudaEvent::Synchronize() {
  const EventRecordRef bound = carried;
  const bool waits = capture == 0;
  mutex.Unlock();
  if (!waits) return Captured();
  const CudaDeviceGuard guard(device.ordinal);
  const CudaRelaxedCapture relaxed;
  const absl::Status waited = CudaStatus(cudaEventSynchronize(handle_), "cudaEventSynchronize");
  absl::Status error = CarriedBy(bound);
  return error.ok() ? waited : error;
}

absl::StatusOr<bool> CudaEvent::Query() {
  if (capture != 0) return Captured();
  const CudaDeviceGuard guard(device.ordinal);
  const CudaRelaxedCapture relaxed;
  const cudaError_t answer = cudaEventQuery(handle_);
  if (answer == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  BRIGADE_RETURN_IF_ERROR(CarriedBy(carried));
  BRIGADE_RETURN_IF_ERROR(CudaStatus(answer, "cudaEventQuery"));
  return true;
}

absl::StatusOr<EventRecordRef> CudaEvent::Follow(std::unique_ptr<Arrivals>& arrivals) {
  if (capture != 0) return Captured();
  if (arrivals == nullptr) {
    absl::StatusOr<std::unique_ptr<CudaArrivals>> made = CudaArrivals::Create(device.ordinal);
    if (!made.ok()) {
      // The waiting stream fails in its order, as by any other error that the event brings.
      EventRecordRef failed = EventRecordRef::Create();
      const absl::Status error = CarriedBy(carried);
      failed->Finish(error.ok() ? made.status() : error);
      return failed;
    }
    arrivals = *std::move(made);
  }
  return static_cast<CudaArrivals&>(*arrivals).Follow(handle_, carried);
}

absl::StatusOr<std::shared_ptr<StreamState>> CudaStream::Create(int ordinal, std::string label,
                                                                TraceBuffer* trace_buffer,
                                                                cudaStream_t idle) {
  const CudaDeviceGuard guard(ordinal);
  BRIGADE_ASSIGN_OR_RETURN(std::shared_ptr<uint32_t> flag, FlagFor(idle));
  cudaStream_t handle = nullptr;
  // Without order after the legacy default stream: rule 3 of docs/device.md has no exception.
  BRIGADE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking),
                                     "cudaStreamCreateWithFlags"));
  std::shared_ptr<CudaStream> stream(
      new CudaStream(ordinal, handle, /*owned=*/true, std::move(label), std::move(flag)));
  BRIGADE_RETURN_IF_ERROR(stream->StartTrace(trace_buffer, idle));
  return std::shared_ptr<StreamState>(std::move(stream));
}

absl::StatusOr<std::shared_ptr<StreamState>> CudaStream::Borrow(int ordinal, cudaStream_t handle,
                                                                std::string label,
                                                                TraceBuffer* trace_buffer,
                                                                cudaStream_t idle) {
  if (handle == cudaStreamPerThread) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": cudaStreamPerThread is another stream in each thread; make one"));
  }
  const CudaDeviceGuard guard(ordinal);
  BRIGADE_ASSIGN_OR_RETURN(std::shared_ptr<uint32_t> flag, FlagFor(idle));
  std::shared_ptr<CudaStream> stream(
      new CudaStream(ordinal, handle, /*owned=*/false, std::move(label), std::move(flag)));
  BRIGADE_RETURN_IF_ERROR(stream->StartTrace(trace_buffer, idle));
  return std::shared_ptr<StreamState>(std::move(stream));
}

absl::Status CudaStream::StartTrace(TraceBuffer* trace_buffer, cudaStream_t idle) {
  if (trace_buffer == nullptr) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(trace_, CudaTrace::Create(*trace_buffer, handle_, idle));
  return absl::OkStatus();
}

CudaStream::CudaStream(int ordinal, cudaStream_t handle, bool owned, std::string label,
                       std::shared_ptr<uint32_t> flag)
    : ordinal_(ordinal),
      label_(std::move(label)),
      owned_(owned),
      handle_(handle),
      errors_(std::make_shared<CarriedErrors>(label_, std::move(flag))) {}

CudaStream::~CudaStream() {
  Close();
  const CudaDeviceGuard guard(ordinal_);
  trace_.reset();
}

absl::Status CudaStream::EnqueueTimed(TracedOperation::Kind kind, absl::string_view name,
                                      int64_t bytes, absl::FunctionRef<absl::Status()> enqueue) {
  return trace_ == nullptr ? enqueue() : trace_->Time(kind, name, bytes, enqueue);
}

absl::Status CudaStream::KeepFirstError(absl::string_view operation, absl::Status status) {
  if (status.ok()) return status;
  status = FailedOperation(operation, label_, status);
  errors_->first().Keep(status);
  return status;
}

void CudaStream::Enqueue(absl::string_view, int64_t, const TaskType&, void*, const void*, size_t) {
  // Stream refuses it.
  std::abort();
}

absl::Status CudaStream::Launch(absl::string_view operation, int64_t bytes,
                                absl::FunctionRef<absl::Status(void*)> launch) {
  const CudaDeviceGuard guard(ordinal_);
  return KeepFirstError(operation, EnqueueTimed(TracedOperation::Kind::kWork, operation, bytes,
                                                [&] { return launch(handle_); }));
}

absl::Status CudaStream::Copy(void* destination, const void* source, int64_t bytes) {
  const CudaDeviceGuard guard(ordinal_);
  return KeepFirstError("copy", EnqueueTimed(TracedOperation::Kind::kWork, "copy", 2 * bytes, [&] {
                          return CudaStatus(
                              cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes),
                                              cudaMemcpyDefault, handle_),
                              "cudaMemcpyAsync");
                        }));
}

absl::Status CudaStream::FillBytes(void* destination, uint8_t value, int64_t bytes) {
  const CudaDeviceGuard guard(ordinal_);
  return KeepFirstError(
      "fill_bytes", EnqueueTimed(TracedOperation::Kind::kWork, "fill_bytes", bytes, [&] {
        return CudaStatus(cudaMemsetAsync(destination, value, static_cast<size_t>(bytes), handle_),
                          "cudaMemsetAsync");
      }));
}

absl::Status CudaStream::Record(EventState& event) {
  auto& cuda_event = static_cast<CudaEvent&>(event);
  cuda_event.mutex.AssertHeld();
  const CudaDeviceGuard guard(ordinal_);
  cuda_event.capture = capture_id();
  const absl::Status recorded = KeepFirstError(
      "record", CudaStatus(cudaEventRecord(cuda_event.handle(), handle_), "cudaEventRecord"));
  cuda_event.carried = errors_->Record();
  // A failed stream records too: its event carries the error, also if CUDA accepts nothing any
  // more.
  return error().ok() ? recorded : absl::OkStatus();
}

bool CudaStream::WaitsOnHost(const EventState& event) const {
  return event.device.kind == DeviceKind::kCpu && errors_->flag() == nullptr;
}

absl::Status CudaStream::Wait(EventState& event, absl::string_view event_name) {
  event.mutex.AssertHeld();
  const CudaDeviceGuard guard(ordinal_);
  const bool is_of_cpu = event.device.kind == DeviceKind::kCpu;
  if (capture_id() != 0 && (is_of_cpu || static_cast<CudaEvent&>(event).capture == 0)) {
    // CUDA would give the capture up.
    return absl::FailedPreconditionError(
        absl::StrCat("wait on ", label_, ", which is captured into a CUDA graph, for event \"",
                     event_name, "\", which was recorded outside of the capture"));
  }
  if (is_of_cpu) {
    std::unique_ptr<Arrivals> none;
    BRIGADE_ASSIGN_OR_RETURN(const EventRecordRef record, event.Follow(none));
    return WaitForFlag(record, event_name);
  }
  auto& cuda_event = static_cast<CudaEvent&>(event);
  cuda_event.mutex.AssertHeld();
  if (cuda_event.carried) errors_->Wait(cuda_event.carried, event_name, /*has_flag=*/false);
  const absl::Status waited =
      KeepFirstError("wait", EnqueueTimed(TracedOperation::Kind::kWait, event_name, 0, [&] {
                       return CudaStatus(cudaStreamWaitEvent(handle_, cuda_event.handle(), 0),
                                         "cudaStreamWaitEvent");
                     }));
  return CarriedBy(cuda_event.carried).ok() ? waited : absl::OkStatus();
}

absl::Status CudaStream::WaitForFlag(const EventRecordRef& record, absl::string_view event_name) {
  // Where the device cannot wait: docs/device.md, rule 19.
  if (errors_->flag() == nullptr) record->Wait().IgnoreError();
  const std::optional<uint32_t> count =
      errors_->Wait(record, event_name, /*has_flag=*/errors_->flag() != nullptr);
  return KeepFirstError("wait", EnqueueTimed(TracedOperation::Kind::kWait, event_name, 0, [&] {
                          if (!count.has_value()) return absl::OkStatus();
                          return CudaStatus(CudaWaitForFlag(handle_, errors_->flag().get(), *count),
                                            "cuStreamWaitValue32");
                        }));
}

uint64_t CudaStream::capture_id() const {
  const CudaDeviceGuard guard(ordinal_);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  // The default stream cannot be captured, and refuses to tell while another one is.
  if (cudaStreamGetCaptureInfo(handle_, &status, &id) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return status == cudaStreamCaptureStatusNone ? 0 : id;
}

bool CudaStream::Drain() {
  const CudaDeviceGuard guard(ordinal_);
  const CudaRelaxedCapture relaxed;
  const MutexLock lock(handle_mutex_);
  if (is_closed_ || capture_id() != 0) return false;
  cudaError_t answer = cudaStreamQuery(handle_);
  const bool busy = answer == cudaErrorNotReady;
  if (busy) {
    static_cast<void>(cudaGetLastError());
    answer = cudaStreamSynchronize(handle_);
  }
  KeepFirstError("work", CudaStatus(answer, "cudaStreamSynchronize"))
      .IgnoreError();  // kept in errors_
  if (trace_ != nullptr) trace_->Collect();
  return busy;
}

void CudaStream::Close() {
  const CudaDeviceGuard guard(ordinal_);
  const CudaRelaxedCapture relaxed;
  const MutexLock lock(handle_mutex_);
  if (!owned_ || is_closed_) return;
  is_closed_ = true;
  static_cast<void>(cudaStreamSynchronize(handle_));
  static_cast<void>(cudaStreamDestroy(handle_));
}

}  // namespace brigade::device::internal
