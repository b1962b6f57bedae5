#include "brigade/emulator/runtime/library.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

// Of the work that runs on this thread.
thread_local int device_of_work = 0;

}  // namespace

cudaError_t EnqueueKernel(cudaStream_t stream_handle, absl::string_view name,
                          std::function<absl::Status()> work) {
  return Api("EnqueueKernel", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(stream_handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const auto run = [name = std::string(name), work = std::move(work)](Device& device) {
      device_of_work = device.ordinal;
      return Machine::Get().Check(work(), name);
    };
    return call.Submit(stream, {Work::Kind::kLibraryKernel, run});
  });
}

absl::StatusOr<const void*> ReadableBytes(const void* data, int64_t bytes) {
  Memory& memory = *Machine::Get().memory;
  const uint64_t address = AddressOf(data);
  BRIGADE_RETURN_IF_ERROR(memory.CheckRead(device_of_work, address, bytes));
  return memory.Host(address);
}

absl::StatusOr<void*> WritableBytes(void* data, int64_t bytes) {
  Memory& memory = *Machine::Get().memory;
  const uint64_t address = AddressOf(data);
  BRIGADE_RETURN_IF_ERROR(memory.CheckWrite(device_of_work, address, bytes));
  return memory.Host(address);
}

}  // namespace brigade::emulator
