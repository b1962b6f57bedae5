#include "brigade/zero/internal/buffer_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::zero::internal {

absl::StatusOr<std::unique_ptr<PooledBuffer>> CreatePooledBuffer(int64_t bytes,
                                                                 device::Purpose purpose,
                                                                 const std::string& name,
                                                                 device::Context& context) {
  auto slot = std::make_unique<PooledBuffer>();
  BRIGADE_ASSIGN_OR_RETURN(auto memory, context.Allocate(bytes, purpose, name));
  BRIGADE_ASSIGN_OR_RETURN(auto event, context.CreateEvent(name));
  slot->memory = std::move(memory);
  slot->free = std::move(event);
  return slot;
}

absl::StatusOr<BufferPool> BufferPool::Create(const std::map<int64_t, int>& sizes,
                                              const std::string& name, device::Context& context) {
  BufferPool pool;
  for (const auto& [bytes, count] : sizes) {
    std::vector<PooledBuffer*>& free = pool.free_[bytes];
    free.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      const std::string each = absl::StrCat(name, " ", pool.slots_.size());
      BRIGADE_ASSIGN_OR_RETURN(
          auto slot, CreatePooledBuffer(bytes, device::Purpose::kCommunication, each, context));
      free.push_back(slot.get());
      pool.slots_.push_back(std::move(slot));
    }
  }
  return pool;
}

PooledBuffer* BufferPool::Take(int64_t bytes) {
  const auto found = free_.find(bytes);
  if (found == free_.end() || found->second.empty()) return nullptr;
  PooledBuffer* const slot = found->second.front();
  found->second.erase(found->second.begin());
  return slot;
}

void BufferPool::Forget() {
  for (const auto& slot : slots_) slot->Forget();
}

void BufferPool::GiveBack(PooledBuffer* slot) { free_[slot->memory.bytes()].push_back(slot); }

}  // namespace brigade::zero::internal
