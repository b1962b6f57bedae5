#ifndef BRIGADE_DEVICE_CUDA_CUDA_STREAM_H_
#define BRIGADE_DEVICE_CUDA_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "brigade/device/cuda/cuda_trace.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/internal/carried_errors.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device::internal {

class CudaEvent final : public EventState {
 public:
  static absl::StatusOr<std::unique_ptr<EventState>> Create(int ordinal);
  ~CudaEvent() override;

  absl::Status Synchronize() ABSL_UNLOCK_FUNCTION(mutex) override;
  absl::StatusOr<bool> Query() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override;
  absl::StatusOr<EventRecordRef> Follow(std::unique_ptr<Arrivals>& arrivals)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override;

  cudaEvent_t handle() const { return handle_; }

  // The error that the latest record carries (empty: none; finished when the record is reached),
  // and the capture that it is in.
  EventRecordRef carried ABSL_GUARDED_BY(mutex);
  uint64_t capture ABSL_GUARDED_BY(mutex) = 0;

 private:
  CudaEvent(int ordinal, cudaEvent_t handle) : EventState(Cuda(ordinal)), handle_(handle) {}

  const cudaEvent_t handle_;
};

// A CUDA stream and what CUDA does not know about it: the errors of launches, and those that events
// brought.
//
// Errors       The error of a launch is known at once, and is here before a later record. The error
//              of a kernel is known when a thread waits; CUDA then refuses all work on the device.
//              One of the CPU comes through an event when it happens (CarriedErrors).
class CudaStream final : public StreamState {
 public:
  // With a null `trace_buffer` it is not traced. `idle` is a stream of the device without work.
  static absl::StatusOr<std::shared_ptr<StreamState>> Create(int ordinal, std::string label,
                                                             TraceBuffer* trace_buffer,
                                                             cudaStream_t idle);
  static absl::StatusOr<std::shared_ptr<StreamState>> Borrow(int ordinal, cudaStream_t handle,
                                                             std::string label,
                                                             TraceBuffer* trace_buffer,
                                                             cudaStream_t idle);
  ~CudaStream() override;

  void Enqueue(absl::string_view operation, int64_t bytes, const TaskType& type, void* work,
               const void* list, size_t items) override;
  absl::Status Launch(absl::string_view operation, int64_t bytes,
                      absl::FunctionRef<absl::Status(void*)> launch) override;
  absl::Status Copy(void* destination, const void* source, int64_t bytes) override;
  absl::Status FillBytes(void* destination, uint8_t value, int64_t bytes) override;
  absl::Status Record(EventState& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(event.mutex) override;
  absl::Status Wait(EventState& event, absl::string_view event_name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(event.mutex) override;
  bool WaitsOnHost(const EventState& event) const override;
  bool Drain() override;
  uint64_t capture_id() const override;
  absl::Status error() const override { return errors_->first().Get(); }
  void ClearError() override { errors_->Clear(); }
  void Close() override;

 private:
  CudaStream(int ordinal, cudaStream_t handle, bool owned, std::string label,
             std::shared_ptr<uint32_t> flag);

  absl::Status StartTrace(TraceBuffer* trace_buffer, cudaStream_t idle);

  // Of a record of the CPU.
  absl::Status WaitForFlag(const EventRecordRef& record, absl::string_view event_name);

  // Calls `enqueue`, timed if this stream is traced.
  absl::Status EnqueueTimed(TracedOperation::Kind kind, absl::string_view name, int64_t bytes,
                            absl::FunctionRef<absl::Status()> enqueue);

  // Keeps the first error, named after the operation; returns the error of this one.
  absl::Status KeepFirstError(absl::string_view operation, absl::Status status);

  const int ordinal_;
  const std::string label_;
  const bool owned_;
  const cudaStream_t handle_;
  // Held by a host wait, which any thread may make that frees memory of the context, and by Close.
  Mutex handle_mutex_;
  bool is_closed_ ABSL_GUARDED_BY(handle_mutex_) = false;
  // Null: not traced.
  std::unique_ptr<CudaTrace> trace_;
  const std::shared_ptr<CarriedErrors> errors_;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CUDA_CUDA_STREAM_H_
