// Memory: allocation, copies and fills.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/emulator/runtime/capture.h"
#include "brigade/emulator/runtime/launch.h"
#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

uint64_t AddressOf(const void* data) { return reinterpret_cast<uint64_t>(data); }

cudaError_t Allocate(Call& call, void** data, size_t bytes, int owner) {
  if (data == nullptr) return cudaErrorInvalidValue;
  *data = nullptr;
  if (const cudaError_t error = call.CheckUnsafe()) return error;
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

// As on hardware, all work of the device ends before its memory is free.
cudaError_t Free(Call& call, void* data, bool is_host) {
  if (data == nullptr) return cudaSuccess;
  if (const cudaError_t error = call.CheckUnsafe()) return error;
  Memory& memory = *call.machine.memory;
  const Memory::Range range = memory.Find(AddressOf(data));
  if (range.address != AddressOf(data) || range.bytes < 0 ||
      (range.owner == Memory::kHost) != is_host) {
    call.AddMistake(absl::StrCat("no such allocation: ", memory.Describe(AddressOf(data))));
    return cudaErrorInvalidValue;
  }
  std::vector<CompletionPtr> pending;
  for (const auto& device : call.machine.devices) {
    if (!is_host && device->ordinal != range.owner) continue;
    for (CompletionPtr& each : call.machine.Pending(*device)) pending.push_back(std::move(each));
  }
  call.machine.mutex.Unlock();
  for (const CompletionPtr& each : pending) each->Wait();
  const absl::Status freed = memory.Free(AddressOf(data));
  call.machine.mutex.Lock();
  if (freed.ok()) return cudaSuccess;
  call.AddMistake(freed.message());
  return cudaErrorInvalidValue;
}

// One side of a copy.
struct Side {
  uint64_t address = 0;
  // Of the device's or page-locked memory.
  bool is_known = false;
  bool is_device = false;
};

Side SideOf(const Machine& machine, const void* data) {
  Side side{AddressOf(data)};
  side.is_known = machine.memory->Contains(side.address);
  side.is_device = side.is_known && machine.memory->Find(side.address).owner != Memory::kHost;
  return side;
}

bool IsKind(cudaMemcpyKind kind, const Side& to, const Side& from) {
  switch (kind) {
    case cudaMemcpyDefault:
      return true;
    case cudaMemcpyHostToHost:
      return !to.is_device && !from.is_device;
    case cudaMemcpyHostToDevice:
      return to.is_device && !from.is_device;
    case cudaMemcpyDeviceToHost:
      return !to.is_device && from.is_device;
    case cudaMemcpyDeviceToDevice:
      return to.is_device && from.is_device;
  }
  return false;
}

cudaError_t CheckRange(const Call& call, const Side& side, size_t bytes) {
  if (!side.is_known) return cudaSuccess;
  const Memory& memory = *call.machine.memory;
  const Memory::Range range = memory.Find(side.address);
  const uint64_t into = side.address - range.address;
  if (range.bytes >= 0 && bytes <= static_cast<uint64_t>(range.bytes) - into) return cudaSuccess;
  return call.Refuse(cudaErrorInvalidValue,
                     absl::StrCat(bytes, " bytes at ", memory.Describe(side.address)));
}

cudaError_t Checked(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return cudaSuccess;
  Machine::Get().Add({Report::Kind::kCall, {}, absl::StrCat(what, ": ", status.message())});
  return absl::StrContains(status.message(), "never written") ? cudaSuccess
                                                              : cudaErrorIllegalAddress;
}

cudaError_t RunCopy(const Side& to, const Side& from, size_t count) {
  Memory& memory = *Machine::Get().memory;
  const auto bytes = static_cast<int64_t>(count);
  void* const host_to = reinterpret_cast<void*>(to.address);
  const void* const host_from = reinterpret_cast<const void*>(from.address);
  absl::Status copied;
  if (to.is_known && from.is_known) {
    copied = memory.Copy(to.address, from.address, bytes);
  } else if (to.is_known) {
    copied = memory.Write(to.address, host_from, bytes);
  } else if (from.is_known) {
    copied = memory.Read(from.address, host_to, bytes);
  } else {
    std::memmove(host_to, host_from, count);
  }
  return Checked(copied, "copy");
}

// `waits`: the call returns when the copy is done.
cudaError_t Copy(Call& call, void* to_data, const void* from_data, size_t bytes,
                 cudaMemcpyKind kind, cudaStream_t stream_handle, bool waits) {
  const auto stream = call.Find(stream_handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (waits) {
    if (const cudaError_t error = call.CheckUnsafe()) return error;
  }
  if (bytes == 0) return cudaSuccess;
  if (to_data == nullptr || from_data == nullptr) return cudaErrorInvalidValue;
  const Side to = SideOf(call.machine, to_data), from = SideOf(call.machine, from_data);
  if (!IsKind(kind, to, from)) {
    return call.Refuse(cudaErrorInvalidValue,
                       absl::StrCat("the direction ", static_cast<int>(kind), " from ",
                                    from.is_device ? "a device" : "the host", " to ",
                                    to.is_device ? "a device" : "the host"));
  }
  for (const Side& side : {to, from}) {
    if (const cudaError_t error = CheckRange(call, side, bytes)) return error;
  }
  Work copy{Work::Kind::kCopy, absl::StrCat("copy of ", bytes, " bytes"), nullptr};
  const bool captures = stream->capture != nullptr;
  if (!from.is_known && !captures) {
    // Memory that is not page-locked is read before the call returns.
    const auto* begin = static_cast<const uint8_t*>(from_data);
    auto staged = std::make_shared<const std::vector<uint8_t>>(begin, begin + bytes);
    copy.run = [to, staged](Device&) {
      return RunCopy(to, Side{AddressOf(staged->data())}, staged->size());
    };
  } else {
    copy.run = [to, from, bytes](Device&) { return RunCopy(to, from, bytes); };
  }
  CompletionPtr done;
  if (const cudaError_t error = call.machine.Submit(*stream, std::move(copy), &done)) return error;
  // Into memory that is not page-locked: the host may read it at once.
  if (done != nullptr && (waits || !to.is_known)) call.waits_for = {done};
  return cudaSuccess;
}

cudaError_t Fill(Call& call, void* data, int value, size_t bytes, cudaStream_t stream_handle) {
  const auto stream = call.Find(stream_handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  const Side side = SideOf(call.machine, data);
  if (!side.is_known) {
    return call.Refuse(cudaErrorInvalidValue, absl::StrFormat("%p is the host's", data));
  }
  if (const cudaError_t error = CheckRange(call, side, bytes)) return error;
  const auto run = [address = side.address, value, bytes](Device&) {
    const std::vector<uint8_t> values(bytes, static_cast<uint8_t>(value));
    return Checked(
        Machine::Get().memory->Write(address, values.data(), static_cast<int64_t>(bytes)), "fill");
  };
  return call.machine.Submit(*stream,
                             {Work::Kind::kFill, absl::StrCat("fill of ", bytes, " bytes"), run});
}

cudaError_t CopyOfSymbol(Call& call, const void* symbol, size_t offset, size_t bytes,
                         uint64_t& address) {
  HostVariable variable;
  if (const cudaError_t error = FindVariable(call, symbol, variable, address)) return error;
  if (offset > variable.bytes || bytes > variable.bytes - offset) return cudaErrorInvalidValue;
  address += offset;
  return cudaSuccess;
}

}  // namespace
}  // namespace brigade::emulator

using namespace brigade::emulator;  // NOLINT: the functions are C's, outside of namespaces

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return Api("cudaMalloc", Needs::kContext,
             [&](Call& call) { return Allocate(call, data, bytes, call.device.ordinal); });
}

cudaError_t cudaFree(void* data) {
  return Api("cudaFree", Needs::kContext,
             [&](Call& call) { return Free(call, data, /*is_host=*/false); });
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return Api("cudaHostAlloc", Needs::kContext,
             [&](Call& call) { return Allocate(call, data, bytes, Memory::kHost); });
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return Api("cudaMallocHost", Needs::kContext,
             [&](Call& call) { return Allocate(call, data, bytes, Memory::kHost); });
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
    if (range.bytes < 0) {
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

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return Api("cudaMemcpy", Needs::kContext, [&](Call& call) {
    return Copy(call, to, from, bytes, kind, cudaStreamLegacy, /*waits=*/true);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Api("cudaMemcpyAsync", Needs::kContext, [&](Call& call) {
    return Copy(call, to, from, bytes, kind, stream, /*waits=*/false);
  });
}

// The host does not wait for it.
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  return Api("cudaMemset", Needs::kContext, [&](Call& call) {
    if (const cudaError_t error = call.CheckUnsafe()) return error;
    return Fill(call, data, value, bytes, cudaStreamLegacy);
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return Api("cudaMemsetAsync", Needs::kContext,
             [&](Call& call) { return Fill(call, data, value, bytes, stream); });
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  return Api("cudaMemcpyToSymbol", Needs::kContext, [&](Call& call) {
    uint64_t to = 0;
    if (const cudaError_t error = CopyOfSymbol(call, symbol, offset, bytes, to)) return error;
    return Copy(call, reinterpret_cast<void*>(to), from, bytes, kind, cudaStreamLegacy, true);
  });
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  return Api("cudaMemcpyFromSymbol", Needs::kContext, [&](Call& call) {
    uint64_t from = 0;
    if (const cudaError_t error = CopyOfSymbol(call, symbol, offset, bytes, from)) return error;
    return Copy(call, to, reinterpret_cast<const void*>(from), bytes, kind, cudaStreamLegacy, true);
  });
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  return Api("cudaGetSymbolAddress", Needs::kContext, [&](Call& call) {
    HostVariable variable;
    uint64_t found = 0;
    if (const cudaError_t error = FindVariable(call, symbol, variable, found)) return error;
    *address = reinterpret_cast<void*>(found);
    return cudaSuccess;
  });
}

}  // extern "C"
