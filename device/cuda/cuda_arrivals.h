#ifndef BRIGADE_DEVICE_CUDA_CUDA_ARRIVALS_H_
#define BRIGADE_DEVICE_CUDA_CUDA_ARRIVALS_H_

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/statusor.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/internal/event_record.h"

namespace brigade::device::internal {

// How a stream of the CPU learns that CUDA's events are reached: a CUDA stream without work of its
// own, which waits for each event in turn and then calls back.
//
// The thread that waits calls no CUDA: such a call may block behind another thread's cudaFree,
// which waits for a stream that may wait for that thread. And a callback, unlike a host function,
// is called when the device has failed.
class CudaArrivals final : public Arrivals {
 public:
  static absl::StatusOr<std::unique_ptr<CudaArrivals>> Create(int ordinal);
  ~CudaArrivals() override;

  // A record that is finished when `event`'s latest record is reached, with the error of
  // `carried`, which may be empty, or of the device. It is finished at once if CUDA refuses.
  EventRecordRef Follow(cudaEvent_t event, const EventRecordRef& carried);

 private:
  CudaArrivals(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}

  const int ordinal_;
  const cudaStream_t stream_;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CUDA_CUDA_ARRIVALS_H_
