// Fill over a range on the CPU: writes only. Large arrays are streamed past the caches, or their
// old contents would be read first.

#include "brigade/kernels/fill/fill_cpu.h"

#include <algorithm>
#include <cstring>

#include "brigade/kernels/nontemporal_store.h"

namespace brigade::kernels {

void FillRange(const FillSegment& segment, const FillPattern& pattern, int64_t element_bytes,
               bool past_caches, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 4096;  // bytes
  alignas(64) char block[kBlock];
  char* const data = static_cast<char*>(segment.data);
  const int64_t last = end * element_bytes;
  for (int64_t i = 0; i < std::min(kBlock, last - begin * element_bytes); i += sizeof(pattern)) {
    std::memcpy(block + i, &pattern, sizeof(pattern));
  }
  for (int64_t i = begin * element_bytes; i < last; i += kBlock) {
    const int64_t bytes = std::min(kBlock, last - i);
    if (past_caches) {
      NontemporalStore(data + i, block, bytes);
    } else {
      std::memcpy(data + i, block, bytes);
    }
  }
}

}  // namespace brigade::kernels
