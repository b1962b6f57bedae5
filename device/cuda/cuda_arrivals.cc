#include "brigade/device/cuda/cuda_arrivals.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/cuda/cuda_device_guard.h"
#include "brigade/device/cuda/cuda_relaxed_capture.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device::internal {
namespace {

// What a callback gets. Used again, so that nothing is allocated in steady state.
struct Arrival {
  EventRecordRef arrived, carried;
  Arrival* next_free = nullptr;
};

struct FreeArrivals {
  Mutex mutex;
  Arrival* first ABSL_GUARDED_BY(mutex) = nullptr;
};

FreeArrivals& Free() {
  // Never destroyed: callbacks may come after main.
  static FreeArrivals* const arrivals = new FreeArrivals;
  return *arrivals;
}

Arrival* Take() {
  const MutexLock lock(Free().mutex);
  Arrival* const arrival = Free().first;
  if (arrival == nullptr) return new Arrival;
  Free().first = arrival->next_free;
  return arrival;
}

void Finish(Arrival* arrival, absl::Status status) {
  EventRecordRef arrived = std::move(arrival->arrived);
  const EventRecordRef carried = std::move(arrival->carried);
  {
    const MutexLock lock(Free().mutex);
    arrival->next_free = Free().first;
    Free().first = arrival;
  }
  // Of a device that has failed the record may never be finished.
  if (carried && carried->finished()) {
    absl::Status error = carried->Wait();
    if (!error.ok()) status = std::move(error);
  }
  arrived->Finish(std::move(status));
}

void CUDART_CB Arrive(cudaStream_t, cudaError_t error, void* data) {
  // A callback must not call CUDA, so the error keeps its number.
  Finish(static_cast<Arrival*>(data),
         error == cudaSuccess
             ? absl::OkStatus()
             : absl::InternalError(
                   absl::StrCat("the device has failed: CUDA error ", static_cast<int>(error))));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaArrivals>> CudaArrivals::Create(int ordinal) {
  const CudaDeviceGuard guard(ordinal);
  const CudaRelaxedCapture relaxed;
  cudaStream_t stream = nullptr;
  BRIGADE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                     "cudaStreamCreateWithFlags"));
  return std::unique_ptr<CudaArrivals>(new CudaArrivals(ordinal, stream));
}

CudaArrivals::~CudaArrivals() {
  const CudaDeviceGuard guard(ordinal_);
  const CudaRelaxedCapture relaxed;
  static_cast<void>(cudaStreamDestroy(stream_));
}

EventRecordRef CudaArrivals::Follow(cudaEvent_t event, const EventRecordRef& carried) {
  const CudaDeviceGuard guard(ordinal_);
  const CudaRelaxedCapture relaxed;
  EventRecordRef arrived = EventRecordRef::Create();
  Arrival* const arrival = Take();
  arrival->arrived = arrived;
  arrival->carried = carried;
  absl::Status status = CudaStatus(cudaStreamWaitEvent(stream_, event, 0), "cudaStreamWaitEvent");
  if (status.ok()) {
    status =
        CudaStatus(cudaStreamAddCallback(stream_, &Arrive, arrival, 0), "cudaStreamAddCallback");
  }
  if (!status.ok()) Finish(arrival, std::move(status));
  return arrived;
}

}  // namespace brigade::device::internal
