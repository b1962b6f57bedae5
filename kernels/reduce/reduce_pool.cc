#include "brigade/kernels/reduce/reduce_pool.h"

#include <algorithm>

#include "brigade/kernels/nontemporal_store.h"
#include "brigade/kernels/reduce/reduce_cpu.h"

namespace brigade::kernels {

void ReduceCpu(absl::Span<const void* const> sources, absl::Span<void* const> targets, int64_t size,
               precision::DType dtype, ReduceOp op, device::ThreadPool& pool,
               const ReduceCarry& carry) {
  const ReduceLists lists = {sources.data(), static_cast<int64_t>(sources.size()), targets.data(),
                             static_cast<int64_t>(targets.size()), carry};
  precision::VisitAny(dtype, [&](auto tag) {
    using T = decltype(tag);
    const int64_t written = size * static_cast<int64_t>(sizeof(T)) * lists.target_count;
    const bool past_caches = written >= kMinNontemporalBytes;
    constexpr int64_t kMaxShare = 64 * kNontemporalBlock;
    const int64_t shares = size / (8 * pool.threads()) / kNontemporalBlock;
    const int64_t share = std::clamp(shares * kNontemporalBlock, 4 * kNontemporalBlock, kMaxShare);
    pool.ParallelRanges(size, share, [&](int64_t begin, int64_t end) {
      ReduceRange<T>(lists, op, past_caches, begin, end);
      NontemporalStoreFence();
    });
  });
}

}  // namespace brigade::kernels
