// Allocations.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/runtime/capture.h"
#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

cudaError_t Allocate(const Call& call, void** data, size_t bytes, int owner) {
  if (data == nullptr) return cudaErrorInvalidValue;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  Memory& memory = *call.machine.memory;
  // No two have one name.
  const std::string name =
      absl::StrCat(call.function, " number ", call.machine.calls[call.function]);
  if (bytes > static_cast<size_t>(memory.bytes())) return cudaErrorMemoryAllocation;
  const auto address = memory.Allocate(static_cast<int64_t>(bytes), name, owner);
  if (!address.ok()) return cudaErrorMemoryAllocation;
  *data = reinterpret_cast<void*>(*address);
  // What the host has not written is no zero.
  if (owner == Memory::kHost) std::memset(*data, 0xcd, bytes);
  return cudaSuccess;
}

cudaError_t AllocateUnsafe(const Call& call, void** data, size_t bytes, int owner) {
  if (const cudaError_t error = call.CheckUnsafe()) return error;
  return Allocate(call, data, bytes, owner);
}

// Whether it is the start of an allocation; its owner.
cudaError_t CheckFree(const Call& call, const void* data, bool is_host, int& owner) {
  const Memory& memory = *call.machine.memory;
  const Memory::Range range = memory.Find(AddressOf(data));
  if (range.address != AddressOf(data) || range.bytes < 0 ||
      (range.owner == Memory::kHost) != is_host) {
    call.AddMistake(absl::StrCat("no such allocation: ", memory.Describe(AddressOf(data))));
    return cudaErrorInvalidValue;
  }
  owner = range.owner;
  return cudaSuccess;
}

// As on hardware, all work of the device ends before its memory is free.
cudaError_t Free(const Call& call, const void* data, bool is_host) {
  if (data == nullptr) return cudaSuccess;
  if (const cudaError_t error = call.CheckUnsafe()) return error;
  int owner = 0;
  if (const cudaError_t error = CheckFree(call, data, is_host, owner)) return error;
  std::vector<CompletionPtr> pending;
  for (const auto& device : call.machine.devices) {
    if (!is_host && device->ordinal != owner) continue;
    for (CompletionPtr& each : call.machine.Pending(*device)) pending.push_back(std::move(each));
  }
  call.WaitNow(pending);
  const absl::Status freed = call.machine.memory->Free(AddressOf(data));
  if (freed.ok()) return cudaSuccess;
  call.AddMistake(freed.message());
  return cudaErrorInvalidValue;
}

}  // namespace
}  // namespace brigade::emulator

using namespace brigade::emulator;  // NOLINT: the functions are C's, outside of namespaces

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return Api("cudaMalloc", Needs::kContext,
             [&](Call& call) { return AllocateUnsafe(call, data, bytes, call.device.ordinal); });
}

cudaError_t cudaFree(void* data) {
  return Api("cudaFree", Needs::kContext,
             [&](Call& call) { return Free(call, data, /*is_host=*/false); });
}

// There at once, and to the end of the stream's work before cudaFreeAsync. Graphs have none.
cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t handle) {
  return Api("cudaMallocAsync", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) {
      return call.Refuse(cudaErrorNotSupported, "memory of a graph's own");
    }
    return Allocate(call, data, bytes, stream->device);
  });
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t handle) {
  return Api("cudaFreeAsync", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (data == nullptr) return cudaSuccess;
    if (stream->capture != nullptr) {
      return call.Refuse(cudaErrorNotSupported, "memory of a graph's own");
    }
    int owner = 0;
    if (const auto error = CheckFree(call, data, /*is_host=*/false, owner)) return error;
    const auto run = [address = AddressOf(data)](Device&) {
      Machine& machine = Machine::Get();
      return machine.Check(machine.memory->Free(address), "cudaFreeAsync");
    };
    return call.Submit(stream, {Work::Kind::kNothing, run});
  });
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return Api("cudaHostAlloc", Needs::kContext,
             [&](Call& call) { return AllocateUnsafe(call, data, bytes, Memory::kHost); });
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return Api("cudaMallocHost", Needs::kContext,
             [&](Call& call) { return AllocateUnsafe(call, data, bytes, Memory::kHost); });
}

cudaError_t cudaFreeHost(void* data) {
  return Api("cudaFreeHost", Needs::kContext,
             [&](Call& call) { return Free(call, data, /*is_host=*/true); });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  return Api("cudaHostGetDevicePointer", Needs::kContext, [&](Call& call) {
    const Memory::Range range = call.machine.memory->Find(AddressOf(host));
    if (range.bytes < 0 || range.owner != Memory::kHost) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return Api("cudaPointerGetAttributes", Needs::kNothing, [&](Call& call) {
    *attributes = {};
    const Memory::Range range = call.machine.memory->Find(AddressOf(data));
    // An end is in no allocation.
    if (range.bytes < 0 || AddressOf(data) == range.address + static_cast<uint64_t>(range.bytes)) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = cudaInvalidDeviceId;
      attributes->hostPointer = const_cast<void*>(data);
      return cudaSuccess;
    }
    const bool is_host = range.owner == Memory::kHost;
    attributes->type = is_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = is_host ? call.device.ordinal : range.owner;
    attributes->devicePointer = const_cast<void*>(data);
    attributes->hostPointer = is_host ? const_cast<void*>(data) : nullptr;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Api("cudaMemGetInfo", Needs::kContext, [&](Call& call) {
    const Memory& memory = *call.machine.memory;
    *total = static_cast<size_t>(memory.bytes());
    *free = static_cast<size_t>(
        std::max(int64_t{0}, memory.bytes() - memory.used_bytes(call.device.ordinal)));
    return cudaSuccess;
  });
}

}  // extern "C"
