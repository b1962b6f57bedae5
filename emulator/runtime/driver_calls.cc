// The driver's functions that programs ask the runtime for.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

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

bool Holds(unsigned condition, uint32_t word, uint32_t value) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<int32_t>(word - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (word & value) != 0;
    default:
      return ~(word | value) != 0;
  }
}

// Looks at the word until the condition holds, as a stream does; of a failed device, no longer.
cudaError_t WaitForWord(const Device& device, uint64_t address, uint32_t value,
                        unsigned condition) {
  const Machine& machine = Machine::Get();
  const absl::Status readable =
      machine.memory->CheckRead(device.ordinal, address, sizeof(uint32_t));
  if (!readable.ok()) return Machine::Get().Check(readable, "cuStreamWaitValue32");
  std::atomic_ref<uint32_t> word(*reinterpret_cast<uint32_t*>(machine.memory->Host(address)));
  auto pause = std::chrono::microseconds(1);
  while (!Holds(condition, word.load(std::memory_order_acquire), value)) {
    if (device.error != cudaSuccess) return cudaSuccess;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(200));
  }
  return cudaSuccess;
}

cudaError_t EnqueueWaitForWord(const Call& call, cudaStream_t handle, uint64_t address,
                               uint32_t value, unsigned flags) {
  const auto stream = call.Find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) {
    return call.Refuse(cudaErrorNotSupported, "a flush of remote writes");
  }
  if (flags > CU_STREAM_WAIT_VALUE_NOR) {
    return call.Refuse(cudaErrorInvalidValue, absl::StrCat("the flags ", flags));
  }
  const Memory& memory = *call.machine.memory;
  const Memory::Range range = memory.Find(address);
  const bool is_whole = range.bytes >= 0 && address - range.address + sizeof(uint32_t) <=
                                                static_cast<uint64_t>(range.bytes);
  if (!is_whole || address % sizeof(uint32_t) != 0 || !memory.Reaches(stream->device, address)) {
    return call.Refuse(cudaErrorInvalidValue, absl::StrCat("no word that ", NameOf(*stream),
                                                           " reaches: ", memory.Describe(address)));
  }
  if (stream->capture != nullptr) {
    return call.Refuse(cudaErrorNotSupported, "a graph's node for an operation on memory");
  }
  const auto run = [address, value, flags](Device& device) {
    return WaitForWord(device, address, value, flags);
  };
  return call.Submit(stream, {Work::Kind::kNothing, run});
}

// The driver's numbers of errors are the runtime's, which has no part in what they say.
CUresult CUDAAPI WaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  const cudaError_t last = ThisThread().last_error;
  const cudaError_t error = Api("cuStreamWaitValue32", Needs::kContext, [&](Call& call) {
    return EnqueueWaitForWord(call, stream, address, value, flags);
  });
  ThisThread().last_error = last;
  return static_cast<CUresult>(error);
}

void* FindFunction(const std::string& name) {
  if (name == "cuDevicePrimaryCtxGetState") return reinterpret_cast<void*>(&PrimaryContextState);
  if (name == "cuDevicePrimaryCtxRetain") return reinterpret_cast<void*>(&RetainPrimaryContext);
  if (name == "cuCtxPushCurrent") return reinterpret_cast<void*>(&PushContext);
  if (name == "cuStreamWaitValue32") return reinterpret_cast<void*>(&WaitValue32);
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
