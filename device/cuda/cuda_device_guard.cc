#include "brigade/device/cuda/cuda_device_guard.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>

#include "brigade/device/cuda/cuda_driver.h"

namespace brigade::device {
namespace {

using internal::FindInDriver;

// The stack of contexts that a thread has in the driver. The runtime works in the one on top.
struct ContextStack {
  decltype(&cuDevicePrimaryCtxRetain) retain =
      FindInDriver<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  decltype(&cuCtxPushCurrent) push = FindInDriver<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent");
  decltype(&cuCtxPopCurrent) pop = FindInDriver<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent");

  static const ContextStack& Get() {
    static const ContextStack stack;
    return stack;
  }
};

// Retained once and, as the runtime does, for the life of the process; null if that fails.
CUcontext PrimaryContext(int ordinal) {
  constexpr size_t kMostDevices = 256;
  static std::array<std::atomic<CUcontext>, kMostDevices> contexts{};
  const auto index = static_cast<size_t>(ordinal);
  if (index >= kMostDevices) return nullptr;
  CUcontext context = contexts[index].load(std::memory_order_acquire);
  if (context != nullptr) return context;
  const ContextStack& stack = ContextStack::Get();
  if (stack.retain == nullptr || stack.push == nullptr || stack.pop == nullptr) return nullptr;
  if (stack.retain(&context, ordinal) != CUDA_SUCCESS) return nullptr;
  contexts[index].store(context, std::memory_order_release);
  return context;
}

}  // namespace

CudaDeviceGuard::CudaDeviceGuard(int ordinal) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == ordinal) return;
  const CUcontext context = PrimaryContext(ordinal);
  pushed_ = context != nullptr && ContextStack::Get().push(context) == CUDA_SUCCESS;
  if (!pushed_) static_cast<void>(cudaSetDevice(ordinal));
}

CudaDeviceGuard::~CudaDeviceGuard() {
  CUcontext context = nullptr;
  if (pushed_) static_cast<void>(ContextStack::Get().pop(&context));
}

}  // namespace brigade::device
