#include "brigade/zero/internal/buffer_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::zero::internal {

absl::StatusOr<std::unique_ptr<PooledBuffer>> CreatePooledBuffer(int64_t bytes,
                                                                 device::Purpose purpose,
                                                                 const std::string& name,
                                                                 device::Context& context) {
  auto buffer = std::make_unique<PooledBuffer>();
  BRIGADE_ASSIGN_OR_RETURN(buffer->memory, context.Allocate(bytes, purpose, name));
  BRIGADE_ASSIGN_OR_RETURN(buffer->free, context.CreateEvent(name));
  return buffer;
}

absl::StatusOr<BufferPool> BufferPool::Create(const std::map<int64_t, int>& sizes,
                                              const std::string& name, device::Context& context) {
  BufferPool pool;
  for (const auto& [bytes, count] : sizes) {
    std::vector<PooledBuffer*>& free = pool.free_[bytes];
    free.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      const std::string each = absl::StrCat(name, " ", pool.buffers_.size());
      BRIGADE_ASSIGN_OR_RETURN(
          auto buffer, CreatePooledBuffer(bytes, device::Purpose::kCommunication, each, context));
      free.push_back(buffer.get());
      pool.buffers_.push_back(std::move(buffer));
    }
  }
  return pool;
}

PooledBuffer* BufferPool::Take(int64_t bytes) {
  const auto found = free_.find(bytes);
  if (found == free_.end() || found->second.empty()) return nullptr;
  PooledBuffer* const buffer = found->second.front();
  found->second.erase(found->second.begin());
  return buffer;
}

void BufferPool::Reset() {
  for (const auto& buffer : buffers_) buffer->Reset();
}

void BufferPool::Return(PooledBuffer* buffer) { free_[buffer->memory.bytes()].push_back(buffer); }

}  // namespace brigade::zero::internal
