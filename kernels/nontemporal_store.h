#ifndef BRIGADE_KERNELS_NONTEMPORAL_STORE_H_
#define BRIGADE_KERNELS_NONTEMPORAL_STORE_H_

#include <algorithm>
#include <cstdint>

#include "brigade/kernels/internal/cache_line.h"
#include "brigade/precision/host_device.h"

namespace brigade::kernels {

// Elements that a kernel gathers in a buffer in the first-level cache before it streams them out.
// Shorter blocks make memory turn between reading and writing too often, longer ones leave it
// waiting: 512 and 8192 reach 0.5 to 0.8 of the speed, 1024, 2048 and 4096 0.85 to 1.0 in one cast
// or another.
inline constexpr int64_t kNontemporalBlock = 1536;

// Outputs of at least this many bytes are worth streaming: smaller ones may be read again from the
// caches.
inline constexpr int64_t kMinNontemporalBytes = int64_t{4} << 20;

// memcpy to memory that will not be read soon: past the caches, so that the old contents of `dst`
// are not read first. For write-only outputs; in-place updates are faster with ordinary stores.
// Other threads may see these stores late: NontemporalStoreFence comes before saying that they are
// done.
void NontemporalStore(void* dst, const void* src, int64_t bytes);

// Orders this thread's NontemporalStore before all that it stores from now on. It waits until
// memory has taken them, so ForEachRange calls it once for a worker's share, not once for a block.
void NontemporalStoreFence();

// Calls block(from, length), which must be always-inline like the body of RunSimd, for the elements
// [begin, end), at most `most` at a time, which is a multiple of a line. The first block ends where
// a line of `written` does: the others are whole lines.
template <typename T, typename Block>
BRIGADE_INLINE void ForEachNontemporalBlock(const T* written, int64_t begin, int64_t end,
                                            int64_t most, const Block& block) {
  constexpr int64_t kLine = kCacheLine / sizeof(T);
  int64_t length = std::min(end - begin, most - kLine + ElementsToLine(written + begin));
  for (int64_t i = begin; i < end; i += length, length = std::min(most, end - i)) {
    block(i, length);
  }
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_NONTEMPORAL_STORE_H_
