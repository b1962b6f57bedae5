// Copies, fills and variables.

#include <cuda_runtime_api.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/emulator/runtime/capture.h"
#include "brigade/emulator/runtime/host_code.h"
#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

// One side of a copy.
struct Side {
  uint64_t address = 0;
  // Of a device's memory or page-locked.
  bool is_known = false;
  bool is_device = false;
};

// What is at `data`, if that many bytes are.
cudaError_t FindSide(const Call& call, const void* data, size_t bytes, Side& side) {
  if (data == nullptr) return cudaErrorInvalidValue;
  side.address = AddressOf(data);
  const Memory& memory = *call.machine.memory;
  side.is_known = memory.Contains(side.address);
  if (!side.is_known) return cudaSuccess;
  const Memory::Range range = memory.Find(side.address);
  side.is_device = range.owner != Memory::kHost;
  const uint64_t into = side.address - range.address;
  if (range.bytes >= 0 && bytes <= static_cast<uint64_t>(range.bytes) - into) return cudaSuccess;
  call.AddMistake(absl::StrCat(bytes, " bytes at ", memory.Describe(side.address)));
  return cudaErrorInvalidValue;
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

cudaError_t CheckKind(const Call& call, cudaMemcpyKind kind, const Side& to, const Side& from) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  if (IsKind(kind, to, from)) return cudaSuccess;
  const auto place = [](const Side& side) { return side.is_device ? "a device" : "the host"; };
  call.AddMistake(absl::StrCat("the direction ", static_cast<int>(kind), " from ", place(from),
                               " to ", place(to)));
  return cudaErrorInvalidValue;
}

// What a copy takes: rows that begin `pitch` bytes apart.
struct Rows {
  size_t bytes = 0;
  size_t count = 1;
  size_t to_pitch = 0, from_pitch = 0;

  // From the first row's begin to the last one's end.
  size_t Span(size_t pitch) const { return (count - 1) * pitch + bytes; }
};

absl::Status CopyRow(const Side& to, const Side& from, size_t offset_to, size_t offset_from,
                     size_t count) {
  Memory& memory = *Machine::Get().memory;
  const auto bytes = static_cast<int64_t>(count);
  const uint64_t to_address = to.address + offset_to, from_address = from.address + offset_from;
  auto* const host_to = reinterpret_cast<void*>(to_address);
  const auto* const host_from = reinterpret_cast<const void*>(from_address);
  if (to.is_known && from.is_known) return memory.Copy(to_address, from_address, bytes);
  if (to.is_known) return memory.Write(to_address, host_from, bytes);
  if (from.is_known) return memory.Read(from_address, host_to, bytes);
  std::memmove(host_to, host_from, count);
  return absl::OkStatus();
}

cudaError_t RunCopy(const Side& to, const Side& from, const Rows& rows) {
  for (size_t row = 0; row < rows.count; ++row) {
    const absl::Status copied =
        CopyRow(to, from, row * rows.to_pitch, row * rows.from_pitch, rows.bytes);
    const cudaError_t error = Machine::Get().Check(copied, "copy");
    // Bytes that were never written are no error on hardware.
    if (error != cudaSuccess && !absl::IsFailedPrecondition(copied)) return error;
  }
  return cudaSuccess;
}

// A copy that has read its source, memory of the host, when this returns.
Work StagedCopy(const Side& to, const Side& from, const Rows& rows) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(from.address);
  auto bytes =
      std::make_shared<const std::vector<uint8_t>>(begin, begin + rows.Span(rows.from_pitch));
  return {Work::Kind::kCopy,
          [to, bytes, rows](Device&) { return RunCopy(to, Side{AddressOf(bytes->data())}, rows); }};
}

// Whether the host may use both sides when the call returns. Source: CUDA Runtime API, "API
// synchronization behavior".
bool Waits(const Side& to, const Side& from, bool is_async, bool is_staged) {
  if (is_async) return !to.is_device && (!to.is_known || !from.is_device);
  return !is_staged && !(to.is_device && from.is_device);
}

cudaError_t Copy(Call& call, void* to_data, const void* from_data, const Rows& rows,
                 cudaMemcpyKind kind, cudaStream_t stream_handle, bool is_async) {
  const auto stream = call.Find(stream_handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (!is_async) {
    if (const cudaError_t error = call.CheckUnsafe()) return error;
  }
  if (rows.bytes == 0 || rows.count == 0) return cudaSuccess;
  Side to, from;
  if (const auto error = FindSide(call, to_data, rows.Span(rows.to_pitch), to)) return error;
  if (const auto error = FindSide(call, from_data, rows.Span(rows.from_pitch), from)) return error;
  if (const cudaError_t error = CheckKind(call, kind, to, from)) return error;
  const bool is_staged = to.is_device && !from.is_known && stream->capture == nullptr;
  if (is_staged && !is_async) call.WaitNow(call.machine.Pending(*stream));
  Work copy = is_staged ? StagedCopy(to, from, rows)
                        : Work{Work::Kind::kCopy,
                               [to, from, rows](Device&) { return RunCopy(to, from, rows); }};
  CompletionPtr done;
  if (const cudaError_t error = call.Submit(stream, std::move(copy), &done)) return error;
  if (done == nullptr || !Waits(to, from, is_async, is_staged)) return cudaSuccess;
  call.waits_for = {done};
  call.waits_of = &call.machine.DeviceOf(*stream);
  return cudaSuccess;
}

cudaError_t Copy2D(Call& call, void* to, size_t to_pitch, const void* from, size_t from_pitch,
                   size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream,
                   bool is_async) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  return Copy(call, to, from, {width, height, to_pitch, from_pitch}, kind, stream, is_async);
}

// Between the devices that the caller names.
cudaError_t CopyPeer(Call& call, void* to, int to_device, const void* from, int from_device,
                     size_t bytes, cudaStream_t stream, bool is_async) {
  const Memory& memory = *call.machine.memory;
  if (memory.Find(AddressOf(to)).owner != to_device ||
      memory.Find(AddressOf(from)).owner != from_device) {
    call.AddMistake(absl::StrCat(memory.Describe(AddressOf(from)), " to ",
                                 memory.Describe(AddressOf(to)), ", not from device ", from_device,
                                 " to device ", to_device));
    return cudaErrorInvalidValue;
  }
  return Copy(call, to, from, {bytes}, cudaMemcpyDeviceToDevice, stream, is_async);
}

cudaError_t Fill(Call& call, void* data, int value, size_t bytes, cudaStream_t stream_handle,
                 bool is_async) {
  const auto stream = call.Find(stream_handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  Side side;
  if (const cudaError_t error = FindSide(call, data, bytes, side)) return error;
  if (!side.is_known) {
    call.AddMistake(absl::StrFormat("%p is the host's", data));
    return cudaErrorInvalidValue;
  }
  const auto run = [address = side.address, value, bytes](Device&) {
    const std::vector<uint8_t> values(bytes, static_cast<uint8_t>(value));
    Machine& machine = Machine::Get();
    return machine.Check(machine.memory->Write(address, values.data(), static_cast<int64_t>(bytes)),
                         "fill");
  };
  CompletionPtr done;
  if (const auto error = call.Submit(stream, {Work::Kind::kFill, run}, &done)) return error;
  // The host waits where it can read what is written.
  if (is_async || side.is_device) return cudaSuccess;
  call.waits_for = {done};
  call.waits_of = &call.machine.DeviceOf(*stream);
  return cudaSuccess;
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

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return Api("cudaMemcpy", Needs::kContext, [&](Call& call) {
    return Copy(call, to, from, {bytes}, kind, cudaStreamLegacy, /*is_async=*/false);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Api("cudaMemcpyAsync", Needs::kContext, [&](Call& call) {
    return Copy(call, to, from, {bytes}, kind, stream, /*is_async=*/true);
  });
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return Api("cudaMemcpy2D", Needs::kContext, [&](Call& call) {
    return Copy2D(call, to, to_pitch, from, from_pitch, width, height, kind, cudaStreamLegacy,
                  /*is_async=*/false);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return Api("cudaMemcpy2DAsync", Needs::kContext, [&](Call& call) {
    return Copy2D(call, to, to_pitch, from, from_pitch, width, height, kind, stream,
                  /*is_async=*/true);
  });
}

// Behind all work of both devices.
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           size_t bytes) {
  return Api("cudaMemcpyPeer", Needs::kContext, [&](Call& call) {
    if (const cudaError_t error = call.CheckUnsafe()) return error;
    for (const auto& device : call.machine.devices) {
      if (device->ordinal != to_device && device->ordinal != from_device) continue;
      call.WaitNow(call.machine.Pending(*device));
    }
    return CopyPeer(call, to, to_device, from, from_device, bytes, cudaStreamLegacy,
                    /*is_async=*/false);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  return Api("cudaMemcpyPeerAsync", Needs::kContext, [&](Call& call) {
    return CopyPeer(call, to, to_device, from, from_device, bytes, stream, /*is_async=*/true);
  });
}

cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  return Api("cudaMemset", Needs::kContext, [&](Call& call) {
    if (const cudaError_t error = call.CheckUnsafe()) return error;
    return Fill(call, data, value, bytes, cudaStreamLegacy, /*is_async=*/false);
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return Api("cudaMemsetAsync", Needs::kContext,
             [&](Call& call) { return Fill(call, data, value, bytes, stream, /*is_async=*/true); });
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  return Api("cudaMemcpyToSymbol", Needs::kContext, [&](Call& call) {
    uint64_t to = 0;
    if (const cudaError_t error = CopyOfSymbol(call, symbol, offset, bytes, to)) return error;
    return Copy(call, reinterpret_cast<void*>(to), from, {bytes}, kind, cudaStreamLegacy,
                /*is_async=*/false);
  });
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  return Api("cudaMemcpyFromSymbol", Needs::kContext, [&](Call& call) {
    uint64_t from = 0;
    if (const cudaError_t error = CopyOfSymbol(call, symbol, offset, bytes, from)) return error;
    return Copy(call, to, reinterpret_cast<const void*>(from), {bytes}, kind, cudaStreamLegacy,
                /*is_async=*/false);
  });
}

cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return Api("cudaGetSymbolSize", Needs::kContext, [&](Call& call) {
    HostVariable variable;
    uint64_t found = 0;
    if (const cudaError_t error = FindVariable(call, symbol, variable, found)) return error;
    *bytes = variable.bytes;
    return cudaSuccess;
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
