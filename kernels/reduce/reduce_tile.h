#ifndef BRIGADE_KERNELS_REDUCE_REDUCE_TILE_H_
#define BRIGADE_KERNELS_REDUCE_REDUCE_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernel calls it, and tests run it on the host.

#include <cstdint>

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/reduce/reduce_math.h"

namespace brigade::kernels {

// Packs of 8 where all arrays lie alike, sums in their wider type too; bytes go one by one.
template <typename T>
BRIGADE_HOST_DEVICE PackLayout ReduceLayout(const ReduceArrays& arrays) {
  PackLayout layout = {0, sizeof(T) >= 2};
  const auto past = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16; };
  const uintptr_t first = past(arrays.sources[0]);
  for (int k = 1; k < arrays.source_count; ++k) layout.vector &= past(arrays.sources[k]) == first;
  for (int k = 0; k < arrays.target_count; ++k) layout.vector &= past(arrays.targets[k]) == first;
  const auto shift = static_cast<int64_t>(first / sizeof(T));
  // The first pack of the sums is cut short by as many elements.
  const auto fits = [&](const void* sums) {
    const auto cut = static_cast<uintptr_t>(shift) * sizeof(ReduceWide<T>);
    return sums == nullptr || (reinterpret_cast<uintptr_t>(sums) - cut) % 16 == 0;
  };
  layout.vector &= fits(arrays.carry.in) && fits(arrays.carry.out);
  if (layout.vector) layout.shift = shift;
  return layout;
}

// A reduction in one pass is compiled without the carry, in fewer registers.
template <ReduceOp kOp, typename T, bool kCarries>
BRIGADE_INLINE void ReduceThread(const ReduceArrays& arrays, PackLayout layout, int64_t tile,
                                 int thread) {
  using Wide = ReduceWide<T>;
  const auto source = [&](int k) { return static_cast<const T*>(arrays.sources[k]); };
  const auto target = [&](int k) { return static_cast<T*>(arrays.targets[k]); };
  const auto* const carry_in = kCarries ? static_cast<const Wide*>(arrays.carry.in) : nullptr;
  auto* const carry_out = kCarries ? static_cast<Wide*>(arrays.carry.out) : nullptr;
  // The first source is where the sums begin, unless those of the pass before are.
  const int first_added = carry_in == nullptr ? 1 : 0;
  const bool is_copy = arrays.source_count == first_added;

  const auto pack = [&](int64_t i) {
    Pack8<T> result;
    if (is_copy) {
      result = LoadPack8(source(0) + i);
    } else {
      Pack8<Wide> sums;
      if (carry_in != nullptr) {
        sums = LoadPack8(carry_in + i);
      } else {
        const Pack8<T> first = LoadPack8(source(0) + i);
        for (int j = 0; j < kPackSize; ++j) sums.values[j] = static_cast<Wide>(first.values[j]);
      }
      for (int k = first_added; k < arrays.source_count; ++k) {
        const Pack8<T> next = LoadPack8(source(k) + i);
        for (int j = 0; j < kPackSize; ++j) {
          sums.values[j] = ReduceElement<kOp>(sums.values[j], static_cast<Wide>(next.values[j]));
        }
      }
      if (carry_out != nullptr) {
        StorePack8(sums, carry_out + i);
        return;
      }
      for (int j = 0; j < kPackSize; ++j) result.values[j] = T(sums.values[j]);
    }
    for (int k = 0; k < arrays.target_count; ++k) StorePack8(result, target(k) + i);
  };
  const auto single = [&](int64_t i) {
    T result;
    if (is_copy) {
      result = source(0)[i];
    } else {
      Wide sum = carry_in != nullptr ? carry_in[i] : static_cast<Wide>(source(0)[i]);
      for (int k = first_added; k < arrays.source_count; ++k) {
        sum = ReduceElement<kOp>(sum, static_cast<Wide>(source(k)[i]));
      }
      if (carry_out != nullptr) {
        carry_out[i] = sum;
        return;
      }
      result = T(sum);
    }
    for (int k = 0; k < arrays.target_count; ++k) target(k)[i] = result;
  };
  ForThread(arrays.size, layout, tile, thread, pack, single);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_TILE_H_
