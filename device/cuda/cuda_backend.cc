#include "brigade/device/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExtMem.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/cuda/cuda_device_guard.h"
#include "brigade/device/cuda/cuda_relaxed_capture.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/device/cuda/cuda_stream.h"
#include "brigade/device/status_macros.h"

namespace brigade::device::internal {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(int ordinal, cudaStream_t housekeeping)
      : ordinal_(ordinal), housekeeping_(housekeeping) {}

  ~CudaBackend() override {
    const CudaDeviceGuard guard(ordinal_);
    static_cast<void>(cudaStreamDestroy(housekeeping_));
  }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    const CudaDeviceGuard guard(ordinal_);
    const CudaRelaxedCapture relaxed;
    void* data = nullptr;
    BRIGADE_RETURN_IF_ERROR(
        CudaStatus(cudaMalloc(&data, static_cast<size_t>(bytes)), "cudaMalloc"));
    return data;
  }

  void Free(void* data, int64_t) override {
    const CudaDeviceGuard guard(ordinal_);
    const CudaRelaxedCapture relaxed;
    // What it may report is an earlier kernel's error, which the stream that ran it reports.
    CudaStatus(cudaFree(data), "cudaFree").IgnoreError();
  }

  absl::StatusOr<void*> AllocateHost(int64_t bytes) override {
    const CudaDeviceGuard guard(ordinal_);
    const CudaRelaxedCapture relaxed;
    void* data = nullptr;
    BRIGADE_RETURN_IF_ERROR(CudaStatus(
        cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault), "cudaHostAlloc"));
    return data;
  }

  void FreeHost(void* data, int64_t) override {
    const CudaDeviceGuard guard(ordinal_);
    const CudaRelaxedCapture relaxed;
    CudaStatus(cudaFreeHost(data), "cudaFreeHost").IgnoreError();
  }

  // By NVTX: compute-sanitizer's reports name the buffer then.
  void Name(void* data, const std::string& name) override {
    nvtxMemRegionNameDesc_t region = {};
    region.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    region.region.pointer = data;
    region.nameType = NVTX_MESSAGE_TYPE_ASCII;
    region.name.ascii = name.c_str();
    nvtxMemRegionsNameBatch_t regions = {};
    regions.extCompatID = NVTX_EXT_COMPATID_MEM;
    regions.structSize = sizeof(regions);
    regions.regionCount = 1;
    regions.regionElementSize = sizeof(region);
    regions.regionElements = &region;
    nvtxMemRegionsName(/*domain=*/nullptr, &regions);
  }

  absl::Status FillBytes(void* data, uint8_t value, int64_t bytes) override {
    const CudaDeviceGuard guard(ordinal_);
    const CudaRelaxedCapture relaxed;
    // cudaMemset does not wait for itself, and other streams do not wait for it: a stream of our
    // own does both.
    BRIGADE_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(data, value, static_cast<size_t>(bytes), housekeeping_),
                   "cudaMemsetAsync"));
    return CudaStatus(cudaStreamSynchronize(housekeeping_), "cudaStreamSynchronize");
  }

  absl::StatusOr<std::shared_ptr<StreamState>> CreateStream(std::string label,
                                                            TraceBuffer* trace_buffer) override {
    return CudaStream::Create(ordinal_, std::move(label), trace_buffer, housekeeping_);
  }

  absl::StatusOr<std::shared_ptr<StreamState>> BorrowStream(void* cuda_stream, std::string label,
                                                            TraceBuffer* trace_buffer) override {
    return CudaStream::Borrow(ordinal_, static_cast<cudaStream_t>(cuda_stream), std::move(label),
                              trace_buffer, housekeeping_);
  }

  absl::StatusOr<std::unique_ptr<EventState>> CreateEvent() override {
    return CudaEvent::Create(ordinal_);
  }

 private:
  const int ordinal_;
  const cudaStream_t housekeeping_;  // poisons memory, tells the time
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int ordinal) {
  const std::string device = absl::StrCat("cuda:", ordinal);
  int devices = 0;
  BRIGADE_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceCount(&devices), absl::StrCat(device, ": cudaGetDeviceCount")));
  if (ordinal >= devices) {
    return absl::UnavailableError(
        absl::StrCat(device, ": no such device; CUDA sees ", devices, " of them"));
  }
  const CudaDeviceGuard guard(ordinal);
  cudaStream_t housekeeping = nullptr;
  BRIGADE_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&housekeeping, cudaStreamNonBlocking),
                 absl::StrCat(device, ": cudaStreamCreateWithFlags")));
  return std::unique_ptr<Backend>(new CudaBackend(ordinal, housekeeping));
}

}  // namespace brigade::device::internal
