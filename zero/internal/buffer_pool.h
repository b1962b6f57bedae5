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

// Memory for one bucket at a time.
struct PooledBuffer {
  device::Buffer memory;
  std::unique_ptr<device::Event> free;  // recorded after the last use of what it holds,
  bool used = false;                    // if there was one
  int bucket = -1;                      // whose layout it has: zeros where that has padding

  // All work on it is over, and nobody knows what it holds.
  void Forget() {
    used = false;
    bucket = -1;
  }
};

// Slots by size, handed out in the order in which they came back, so that the wait for the last use is short.
class BufferPool {
 public:
  // sizes: bytes -> how many.
  static absl::StatusOr<BufferPool> Create(const std::map<int64_t, int>& sizes,
                                           const std::string& name, device::Context& context);

  // Null if none of this size is left.
  PooledBuffer* Take(int64_t bytes);
  void GiveBack(PooledBuffer* slot);

  // How many of this size are left.
  size_t left(int64_t bytes) const {
    const auto found = free_.find(bytes);
    return found == free_.end() ? 0 : found->second.size();
  }

  void Forget();  // all slots

 private:
  std::vector<std::unique_ptr<PooledBuffer>> slots_;
  std::map<int64_t, std::vector<PooledBuffer*>> free_;  // oldest first
};

// A slot for good, with its event.
absl::StatusOr<std::unique_ptr<PooledBuffer>> CreatePooledBuffer(int64_t bytes,
                                                                 device::Purpose purpose,
                                                                 const std::string& name,
                                                                 device::Context& context);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_BUFFER_POOL_H_
