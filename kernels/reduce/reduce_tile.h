#ifndef BRIGADE_KERNELS_REDUCE_REDUCE_TILE_H_
#define BRIGADE_KERNELS_REDUCE_REDUCE_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernel calls it, and tests run it on the host.

#include <cstdint>
#include <initializer_list>

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/reduce/reduce_math.h"

namespace brigade::kernels {

// The elements of a thread: of bytes a group.
template <typename T>
inline constexpr int kReducePack = sizeof(T) == 1 ? GroupSize(sizeof(T)) : kPackSize;

// The sources that a thread loads before it adds them: as many as its registers hold, 32 or 64 of
// them (kBlocksPerSm of reduce_cuda.cu).
template <typename T>
inline constexpr int kReduceSources = sizeof(T) == 1 || sizeof(T) == 8 ? 1 : 2;

template <typename T, bool kCarries>
using ReducePackLayout =
    PackLayout<GroupSize(kCarries ? sizeof(ReduceWide<T>) : sizeof(T)), kReducePack<T>>;

template <typename T, bool kCarries>
BRIGADE_HOST_DEVICE ReducePackLayout<T, kCarries> ReduceLayout(const ReduceArrays& arrays) {
  ReducePackLayout<T, kCarries> layout(static_cast<const T*>(arrays.sources[0]));
  for (int k = 0; k < arrays.source_count; ++k) {
    layout.Add(static_cast<const T*>(arrays.sources[k]));
  }
  for (int k = 0; k < arrays.target_count; ++k) layout.Add(static_cast<T*>(arrays.targets[k]));
  for (const void* const sums : {arrays.carry.in, static_cast<const void*>(arrays.carry.out)}) {
    if (sums != nullptr) layout.Add(static_cast<const ReduceWide<T>*>(sums));
  }
  return layout;
}

// A reduction in one pass is compiled without the carry, in fewer registers.
template <ReduceOp kOp, typename T, bool kCarries>
BRIGADE_INLINE void ReduceThread(const ReduceArrays& arrays,
                                 const ReducePackLayout<T, kCarries>& layout, int64_t tile,
                                 int thread) {
  using Wide = ReduceWide<T>;
  constexpr int kPack = kReducePack<T>;
  const auto source = [&](int k) { return static_cast<const T*>(arrays.sources[k]); };
  const auto target = [&](int k) { return static_cast<T*>(arrays.targets[k]); };
  const auto* const carry_in = kCarries ? static_cast<const Wide*>(arrays.carry.in) : nullptr;
  [[maybe_unused]] auto* const carry_out = static_cast<Wide*>(arrays.carry.out);
  // The first source is where the sums begin, unless those of the pass before are.
  const int first_added = carry_in == nullptr ? 1 : 0;
  const bool is_copy = arrays.source_count == first_added;

  const auto reduce = [&](const auto& chunk) {
    Pack<T, kPack> result = {};
    if (carry_in == nullptr) result = chunk.Load(source(0));
    if (!is_copy) {
      Pack<Wide, kPack> sums;
      for (int j = 0; j < kPack; ++j) sums.values[j] = static_cast<Wide>(result.values[j]);
      if constexpr (kCarries) {
        if (carry_in != nullptr) sums = chunk.Load(carry_in);
      }
      [[maybe_unused]] constexpr int kAtOnce = kReduceSources<T>;
#ifdef __CUDA_ARCH__
#pragma unroll kAtOnce
#endif
      for (int k = first_added; k < arrays.source_count; ++k) {
        const Pack<T, kPack> next = chunk.Load(source(k));
        for (int j = 0; j < kPack; ++j) {
          sums.values[j] = ReduceElement<kOp>(sums.values[j], static_cast<Wide>(next.values[j]));
        }
      }
      if constexpr (kCarries) {
        if (carry_out != nullptr) return chunk.Store(sums, carry_out);
      }
      for (int j = 0; j < kPack; ++j) result.values[j] = T(sums.values[j]);
    }
    for (int k = 0; k < arrays.target_count; ++k) chunk.Store(result, target(k));
  };
  layout.ForThread(arrays.size, tile, thread, reduce);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_TILE_H_
