#ifndef BRIGADE_ZERO_INTERNAL_BUFFER_POOL_H_
#define BRIGADE_ZERO_INTERNAL_BUFFER_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"

namespace brigade::zero::internal {

// Memory that holds one bucket at a time.
struct PooledBuffer {
  device::Buffer memory;
  // Recorded after the last use of the memory, if there was one.
  std::unique_ptr<device::Event> free;
  bool used = false;
  // The bucket whose padding is zero in this memory; -1: none.
  int bucket = -1;

  // All work on the memory is over, and its content is unknown.
  void Reset() {
    used = false;
    bucket = -1;
  }
};

// Buffers by size, taken in the order in which they were returned, so that the wait for the last
// use is short.
class BufferPool {
 public:
  // `sizes` has the number of buffers of each size in bytes.
  static absl::StatusOr<BufferPool> Create(const std::map<int64_t, int>& sizes,
                                           const std::string& name, device::Context& context);

  // Null if no buffer of this size is left.
  PooledBuffer* Take(int64_t bytes);
  void Return(PooledBuffer* buffer);

  // The number of buffers of this size that are left.
  size_t left(int64_t bytes) const {
    const auto found = free_.find(bytes);
    return found == free_.end() ? 0 : found->second.size();
  }

  // Resets all buffers.
  void Reset();

  const std::vector<std::unique_ptr<PooledBuffer>>& buffers() const { return buffers_; }

 private:
  std::vector<std::unique_ptr<PooledBuffer>> buffers_;
  // By size; the one returned first comes first.
  std::map<int64_t, std::vector<PooledBuffer*>> free_;
};

// A buffer outside a pool, with its event.
absl::StatusOr<std::unique_ptr<PooledBuffer>> CreatePooledBuffer(int64_t bytes,
                                                                 device::Purpose purpose,
                                                                 const std::string& name,
                                                                 device::Context& context);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_BUFFER_POOL_H_
