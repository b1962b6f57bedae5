// The driver's functions that programs ask the runtime for.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

CUresult CUDAAPI PrimaryContextState(CUdevice device, unsigned* flags, int* active) {
  Machine& machine = Machine::Get();
  const device::MutexLock lock(machine.mutex);
  if (device < 0 || device >= machine.options.devices) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = machine.devices[static_cast<size_t>(device)]->has_context ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI RetainPrimaryContext(CUcontext* context, CUdevice device) {
  Machine& machine = Machine::Get();
  const device::MutexLock lock(machine.mutex);
  if (device < 0 || device >= machine.options.devices) return CUDA_ERROR_INVALID_DEVICE;
  Device& retained = *machine.devices[static_cast<size_t>(device)];
  retained.has_context = true;
  *context = reinterpret_cast<CUcontext>(&retained);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI PushContext(CUcontext context) {
  ThisThread().contexts.push_back(reinterpret_cast<const Device*>(context)->ordinal);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI PopContext(CUcontext* context) {
  std::vector<int>& contexts = ThisThread().contexts;
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  Device& popped = *Machine::Get().devices[static_cast<size_t>(contexts.back())];
  *context = reinterpret_cast<CUcontext>(&popped);
  contexts.pop_back();
  return CUDA_SUCCESS;
}

void* FindFunction(const std::string& name) {
  if (name == "cuDevicePrimaryCtxGetState") return reinterpret_cast<void*>(&PrimaryContextState);
  if (name == "cuDevicePrimaryCtxRetain") return reinterpret_cast<void*>(&RetainPrimaryContext);
  if (name == "cuCtxPushCurrent") return reinterpret_cast<void*>(&PushContext);
  if (name == "cuCtxPopCurrent") return reinterpret_cast<void*>(&PopContext);
  return nullptr;
}

}  // namespace
}  // namespace brigade::emulator

using namespace brigade::emulator;  // NOLINT: the functions are C's, outside of namespaces

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return Api("cudaGetDriverEntryPointByVersion", Needs::kNothing, [&](Call& call) {
    *function = FindFunction(symbol);
    const bool is_known = *function != nullptr;
    if (result != nullptr) {
      *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    if (is_known) return cudaSuccess;
    return call.Refuse(cudaSuccess, absl::StrCat("the driver's ", symbol));
  });
}

}  // extern "C"
