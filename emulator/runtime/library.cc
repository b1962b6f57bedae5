#include "brigade/emulator/runtime/library.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

// Of the work that runs on this thread.
thread_local int device_of_work = 0;

}  // namespace

struct KernelChain::State {
  // Of the last kernel outside of captures.
  CompletionPtr last;
};

KernelChain::KernelChain() : state_(std::make_unique<State>()) {}
KernelChain::~KernelChain() = default;

cudaError_t EnqueueKernel(cudaStream_t stream_handle, absl::string_view name,
                          std::function<absl::Status()> work, KernelChain* chain) {
  return Api("EnqueueKernel", Needs::kContext, [&](Call& call) {
    const auto stream = call.Find(stream_handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const auto run = [name = std::string(name), work = std::move(work)](Device& device) {
      device_of_work = device.ordinal;
      return Machine::Get().Check(work(), name);
    };
    const Work kernel = {Work::Kind::kLibraryKernel, run, chain != nullptr};
    if (chain == nullptr || stream->capture != nullptr) return call.Submit(stream, kernel);
    CompletionPtr& last = chain->state_->last;
    std::vector<CompletionPtr> after;
    if (last != nullptr) after.push_back(last);
    CompletionPtr completion;
    const cudaError_t enqueued = call.Submit(stream, kernel, &completion, std::move(after));
    if (completion != nullptr) last = std::move(completion);
    return enqueued;
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

absl::StatusOr<void*> ReachableBytes(void* data, int64_t bytes) {
  const Memory& memory = *Machine::Get().memory;
  const uint64_t address = AddressOf(data);
  const Memory::Range range = memory.Find(address);
  const uint64_t end = address - range.address + static_cast<uint64_t>(bytes);
  if (range.bytes >= 0 && end <= static_cast<uint64_t>(range.bytes) &&
      memory.Reaches(device_of_work, address)) {
    return memory.Host(address);
  }
  return absl::InvalidArgumentError(absl::StrCat("no ", bytes, " bytes of device ", device_of_work,
                                                 " at ", memory.Describe(address)));
}

void ReportMistake(absl::string_view text) {
  Machine::Get().Add({Report::Kind::kCall, {}, std::string(text)});
}

}  // namespace brigade::emulator
