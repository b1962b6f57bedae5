// Fill over a list on the CPU: writes only. Large arrays are streamed past the caches, or their old
// contents would be read first.

#include "brigade/kernels/fill/fill_cpu.h"

#include <algorithm>
#include <cstring>

#include "brigade/kernels/nontemporal_store.h"

namespace brigade::kernels {

void FillCpu(absl::Span<const PlannedSegment<FillSegment>> plan, FillPattern pattern,
             int64_t element_bytes, device::ThreadPool& pool) {
  constexpr int64_t kBlock = 4096;  // bytes
  alignas(64) char block[kBlock];
  for (int64_t i = 0; i < kBlock; i += sizeof(pattern)) {
    std::memcpy(block + i, &pattern, sizeof(pattern));
  }
  const bool nontemporal = CountElements(plan) * element_bytes >= kMinNontemporalBytes;
  ForEachRange(plan, kCpuTile, pool,
               [&](const FillSegment& segment, int64_t begin, int64_t end, int64_t) {
                 char* const data = static_cast<char*>(segment.data);
                 for (int64_t i = begin * element_bytes; i < end * element_bytes; i += kBlock) {
                   const int64_t bytes = std::min(kBlock, end * element_bytes - i);
                   if (nontemporal) {
                     NontemporalStore(data + i, block, bytes);
                   } else {
                     std::memcpy(data + i, block, bytes);
                   }
                 }
               });
}

}  // namespace brigade::kernels
