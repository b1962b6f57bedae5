// Reduction on the CPU: reads every source once, writes every target once. A block of the result is built in the
// first-level cache and goes to the targets from there; a large target that is no source as well is streamed
// past the caches, or its old contents would be read first. A single source is copied as it is.

#include "brigade/kernels/reduce/reduce_cpu.h"

#include <algorithm>
#include <cstring>

#include "brigade/kernels/common/simd.h"
#include "brigade/kernels/common/stream_out.h"
#include "brigade/kernels/reduce/reduce_math.h"

namespace brigade::kernels {
namespace {

// Elements [begin, begin + length) of all sources, reduced into `result`.
template <ReduceOp kOp, typename T>
BRIGADE_INLINE void ReduceBlock(absl::Span<const void* const> sources, int64_t begin,
                                int64_t length, T* result) {
  using Wide = ReduceWide<T>;
  const auto source = [&](size_t i) { return static_cast<const T*>(sources[i]) + begin; };
  if (sources.size() == 2) {
    const T* const a = source(0);
    const T* const b = source(1);
#pragma GCC ivdep
    for (int64_t i = 0; i < length; ++i) {
      result[i] = T(ReduceElement<kOp>(static_cast<Wide>(a[i]), static_cast<Wide>(b[i])));
    }
    return;
  }
  alignas(64) Wide sums[kStreamBlock];
  const T* const first = source(0);
#pragma GCC ivdep
  for (int64_t i = 0; i < length; ++i) sums[i] = static_cast<Wide>(first[i]);
  for (size_t k = 1; k < sources.size(); ++k) {
    const T* const next = source(k);
#pragma GCC ivdep
    for (int64_t i = 0; i < length; ++i) {
      sums[i] = ReduceElement<kOp>(sums[i], static_cast<Wide>(next[i]));
    }
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < length; ++i) result[i] = T(sums[i]);
}

template <ReduceOp kOp, typename T>
void ReduceRange(absl::Span<const void* const> sources, absl::Span<void* const> targets,
                 bool stream_out, int64_t begin, int64_t end) {
  const auto write = [&](void* target, int64_t at, const T* from, int64_t length) {
    T* const to = static_cast<T*>(target) + at;
    const bool in_place = std::find(sources.begin(), sources.end(), target) != sources.end();
    const int64_t bytes = length * static_cast<int64_t>(sizeof(T));
    if (stream_out && !in_place) {
      StreamOut(to, from, bytes);
    } else if (to != from) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  };
  RunSimd([&]() BRIGADE_SIMD_BODY {
    alignas(64) T block[kStreamBlock];
    for (int64_t i = begin; i < end; i += kStreamBlock) {
      const int64_t length = std::min(kStreamBlock, end - i);
      const T* from = block;
      if (sources.size() == 1) {
        from = static_cast<const T*>(sources[0]) + i;
      } else {
        ReduceBlock<kOp>(sources, i, length, block);
      }
      for (void* const target : targets) write(target, i, from, length);
    }
  });
  StreamOutFence();
}

}  // namespace

void ReduceCpu(absl::Span<const void* const> sources, absl::Span<void* const> targets, int64_t size,
               precision::DType dtype, ReduceOp op, device::ThreadPool& pool) {
  const auto reduce = [&](auto tag) {
    using T = decltype(tag);
    const bool stream_out = size * static_cast<int64_t>(sizeof(T)) >= kStreamOutBytes;
    constexpr int64_t kMaxShare = 64 * kStreamBlock;
    const int64_t shares = size / (8 * pool.threads()) / kStreamBlock;
    const int64_t share = std::clamp(shares * kStreamBlock, 4 * kStreamBlock, kMaxShare);
    VisitReduceOp(op, [&](auto constant) {
      pool.ParallelRanges(size, share, [&](int64_t begin, int64_t end) {
        ReduceRange<decltype(constant)::value, T>(sources, targets, stream_out, begin, end);
      });
    });
  };
  precision::VisitAny(dtype, reduce);
}

}  // namespace brigade::kernels
