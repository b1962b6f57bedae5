#include "brigade/device/cuda/cuda_flag.h"

#include <cstddef>
#include <new>
#include <vector>

#include "brigade/device/cuda/cuda_driver.h"
#include "brigade/device/cuda/cuda_relaxed_capture.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device::internal {
namespace {

// A word has a cache line of its own.
constexpr size_t kLineBytes = 64, kPageBytes = 4096;

struct FreeFlags {
  Mutex mutex;
  std::vector<uint32_t*> flags ABSL_GUARDED_BY(mutex);
};

FreeFlags& Flags() {
  // Never destroyed: streams may outlive main.
  static FreeFlags* const flags = new FreeFlags;
  return *flags;
}

absl::Status AddPage(FreeFlags& free) ABSL_EXCLUSIVE_LOCKS_REQUIRED(free.mutex) {
  const CudaRelaxedCapture relaxed;
  void* page = nullptr;
  // All devices reach it.
  BRIGADE_RETURN_IF_ERROR(
      CudaStatus(cudaHostAlloc(&page, kPageBytes, cudaHostAllocPortable), "cudaHostAlloc"));
  for (size_t offset = 0; offset < kPageBytes; offset += kLineBytes) {
    free.flags.push_back(new (static_cast<std::byte*>(page) + offset) uint32_t(0));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<uint32_t>> TakeCudaFlag() {
  FreeFlags& free = Flags();
  const MutexLock lock(free.mutex);
  if (free.flags.empty()) BRIGADE_RETURN_IF_ERROR(AddPage(free));
  uint32_t* const flag = free.flags.back();
  free.flags.pop_back();
  return std::shared_ptr<uint32_t>(flag, [&free](uint32_t* returned) {
    const MutexLock lock(free.mutex);
    free.flags.push_back(returned);
  });
}

cudaError_t CudaWaitForFlag(cudaStream_t stream, const uint32_t* flag, uint32_t count) {
  static const auto wait = FindInDriver<decltype(&cuStreamWaitValue32)>("cuStreamWaitValue32");
  if (wait == nullptr) return cudaErrorNotSupported;
  // The driver's numbers of errors are the runtime's. Page-locked memory has one address for the
  // host and all devices.
  return static_cast<cudaError_t>(
      wait(stream, reinterpret_cast<CUdeviceptr>(flag), count, CU_STREAM_WAIT_VALUE_GEQ));
}

bool CudaCanWaitForFlags(cudaStream_t idle, const uint32_t* flag) {
  return CudaWaitForFlag(idle, flag, *flag) == cudaSuccess;
}

}  // namespace brigade::device::internal
