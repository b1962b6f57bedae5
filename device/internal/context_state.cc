#include "brigade/device/internal/context_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/address_registry.h"
#include "brigade/device/threads/worker_thread.h"

namespace brigade::device::internal {
namespace {

constexpr uint8_t kPoison = 0xFF;

}  // namespace

ContextState::ContextState(const ContextOptions& options, RaceChecker* checker, int compute_threads)
    : device(options.device),
      name(options.name),
      checker(checker),
      tracer(options.tracer),
      pool(compute_threads),
      limit_bytes_(options.memory_limit_bytes),
      host_limit_bytes_(options.host_memory_limit_bytes) {}

// No stream is left to wait for: each shares this state.
ContextState::~ContextState() {
  for (const Allocation& memory : deferred_) ReturnMemory(memory);
}

void ContextState::AddStream(std::shared_ptr<StreamState> state, RaceChecker::ActorId actor) {
  MutexLock lock(streams_mutex_);
  streams_.push_back({std::move(state), actor});
}

void ContextState::RemoveStream(const StreamState* state) {
  MutexLock lock(streams_mutex_);
  std::erase_if(streams_,
                [state](const RegisteredStream& entry) { return entry.state.get() == state; });
}

bool ContextState::AnyCaptures() {
  MutexLock lock(streams_mutex_);
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const RegisteredStream& entry) { return entry.state->capture_id() != 0; });
}

void ContextState::WaitForStreams() {
  std::vector<std::shared_ptr<StreamState>> states;
  VectorClock over;
  {
    MutexLock lock(streams_mutex_);
    for (const RegisteredStream& entry : streams_) {
      states.push_back(entry.state);
      if (checker != nullptr) over.Join(checker->Now(entry.actor));
    }
  }
  bool waited = false;
  for (const auto& state : states) waited |= state->Drain();
  if (waited) CountHostWait();
  if (checker != nullptr) checker->HostAcquire(over);
}

absl::Status ContextState::Poison(const Allocation& memory) {
  if (memory.tier == Tier::kDevice) return backend->FillBytes(memory.data, kPoison, memory.bytes);
  std::memset(memory.data, kPoison, static_cast<size_t>(memory.bytes));
  return absl::OkStatus();
}

void ContextState::ReturnToSystem(const Allocation& memory) {
  if (memory.tier == Tier::kDevice) {
    backend->Free(memory.data, memory.bytes);
  } else {
    backend->FreeHost(memory.data, memory.bytes);
  }
}

absl::StatusOr<void*> ContextState::Allocate(int64_t bytes, Tier tier, Purpose purpose,
                                             absl::string_view name) {
  ReturnDeferred();
  if (bytes == 0) return nullptr;
  MemoryStats& books = BooksOf(tier);
  const int64_t limit = LimitOf(tier);
  const auto refuse = [&](const absl::Status& why) {
    return absl::Status(
        why.code(),
        absl::StrCat("\"", this->name, "\" cannot have ", bytes, " bytes ",
                     tier == Tier::kDevice ? "" : "of the host ", "for ", ToString(purpose),
                     name.empty() ? "" : absl::StrCat(" (\"", name, "\")"), ": ", why.message(),
                     "; in use ", books.current_bytes(), " bytes (", books.ToString(), "), limit ",
                     limit == 0 ? "none" : absl::StrCat(limit)));
  };
  MutexLock lock(allocation_mutex_);
  if (limit != 0 && bytes > limit - books.current_bytes()) {
    return refuse(absl::ResourceExhaustedError("the context's limit would be exceeded"));
  }
  const absl::StatusOr<void*> data =
      tier == Tier::kDevice ? backend->Allocate(bytes) : backend->AllocateHost(bytes);
  if (!data.ok()) return refuse(data.status());
  if (!name.empty()) backend->Name(*data, std::string(name));
  const Allocation memory = {*data, bytes, tier, purpose};
  const absl::Status poisoned = Poison(memory);
  if (!poisoned.ok()) {
    ReturnToSystem(memory);
    return refuse(poisoned);
  }
  books.Add(purpose, bytes);
  AddressRegistry::Global().Add(*data, bytes, DeviceOf(tier), /*owned=*/true, tier);
  if (checker != nullptr) checker->AddMemory(*data, bytes, name, /*owned=*/true);
  return data;
}

void ContextState::Free(void* data, int64_t bytes, Tier tier, Purpose purpose) {
  if (data == nullptr) return;
  if (on_worker_thread || AnyCaptures()) {
    MutexLock lock(deferred_mutex_);
    deferred_.push_back({data, bytes, tier, purpose});
    return;
  }
  ReturnDeferred();
  WaitForStreams();
  ReturnMemory({data, bytes, tier, purpose});
}

void ContextState::ReturnMemory(const Allocation& memory) {
  // Unregister the memory first: once it is free, another allocation may get the same address.
  if (checker != nullptr) checker->RemoveMemory(memory.data, memory.bytes, /*owned=*/true);
  AddressRegistry::Global().Remove(memory.data, memory.bytes, /*owned=*/true);
  BooksOf(memory.tier).Remove(memory.purpose, memory.bytes);
  // A device that fails to fill memory reports that elsewhere; the memory is freed in any case.
  if (checker != nullptr) Poison(memory).IgnoreError();
  ReturnToSystem(memory);
}

void ContextState::ReturnDeferred() {
  if (on_worker_thread || AnyCaptures()) return;
  std::vector<Allocation> memories;
  {
    MutexLock lock(deferred_mutex_);
    memories.swap(deferred_);
  }
  if (memories.empty()) return;
  WaitForStreams();
  for (const Allocation& memory : memories) ReturnMemory(memory);
}

}  // namespace brigade::device::internal
