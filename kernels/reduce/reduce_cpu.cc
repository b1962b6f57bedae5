// Reduction of a range on the CPU: reads every source once, writes every target once. A block of
// the result is built in the first-level cache and goes to the targets from there; a large target
// that is no source as well is streamed past the caches, or its old contents would be read first. A
// single source is copied as it is.

#include "brigade/kernels/reduce/reduce_cpu.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "brigade/kernels/cast/cast_elements.h"
#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/nontemporal_store.h"
#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

// Reduces kCount sources into `sums`, after what is there or as the first ones.
template <ReduceOp kOp, int kCount, bool kFirst, typename T>
BRIGADE_INLINE void AddSources(const void* const* sources, int64_t begin, int64_t length,
                               ReduceWide<T>* sums) {
  using Wide = ReduceWide<T>;
  const T* from[kCount];
  for (int k = 0; k < kCount; ++k) from[k] = static_cast<const T*>(sources[k]) + begin;
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < length; ++i) {
    Wide sum = static_cast<Wide>(from[0][i]);
    if constexpr (!kFirst) sum = ReduceElement<kOp>(sums[i], sum);
    for (int k = 1; k < kCount; ++k) sum = ReduceElement<kOp>(sum, static_cast<Wide>(from[k][i]));
    sums[i] = sum;
  }
}

// Elements [begin, begin + length) of all sources, four at a time: at least two if they are the
// first ones, or any number after what is in `sums`. Those of fp16 one at a time, converted by
// `wide`, [length], with the processor's instructions.
template <ReduceOp kOp, typename T, typename Lanes>
BRIGADE_INLINE void ReduceBlock(Lanes lanes, const ReduceLists& lists, int64_t begin,
                                int64_t length, bool is_first, ReduceWide<T>* sums,
                                [[maybe_unused]] float* wide) {
  const int64_t count = lists.source_count;
  const void* const* const all = lists.sources;
  if constexpr (std::is_same_v<T, precision::Half>) {
    for (int64_t k = 0; k < count; ++k) {
      const bool is_sum = k == 0 && is_first;
      const T* const source = static_cast<const T*>(all[k]) + begin;
      CastElements<Write::kReplace>(lanes, source, is_sum ? sums : wide, length, 1.0f);
      if (is_sum) continue;
      BRIGADE_SIMD_LOOP
      for (int64_t i = 0; i < length; ++i) sums[i] = ReduceElement<kOp>(sums[i], wide[i]);
    }
    return;
  }
  int64_t k = is_first ? std::min<int64_t>(count, 4) : 0;
  if (k == 2) AddSources<kOp, 2, true, T>(all, begin, length, sums);
  if (k == 3) AddSources<kOp, 3, true, T>(all, begin, length, sums);
  if (k == 4) AddSources<kOp, 4, true, T>(all, begin, length, sums);
  for (; k + 4 <= count; k += 4) AddSources<kOp, 4, false, T>(all + k, begin, length, sums);
  for (; k < count; ++k) AddSources<kOp, 1, false, T>(all + k, begin, length, sums);
}

// Elements of a short block, in whole lines. From figures of an AMD EPYC (Zen 4), as kFewArrays is:
// docs/decisions/0151. 16-bit types compute more for each byte.
template <typename T>
inline constexpr int64_t kShortBlock = (sizeof(T) == 2 ? 512 : 256) / sizeof(T);

// Whether blocks are short: of targets past the caches, so that memory reads the next lines while
// it takes the last ones, as it does in a copy. Not of more streams than the processor follows, nor
// where the lines of two targets lie differently, whose ends would then be written in parts.
template <typename T>
bool TakesShortBlocks(const ReduceLists& lists, bool past_caches) {
  constexpr int64_t kFewArrays = 16;
  const T* const first = static_cast<const T*>(lists.targets[0]);
  const bool alike =
      std::all_of(lists.targets, lists.targets + lists.target_count, [&](const void* target) {
        return ElementsToLine(static_cast<const T*>(target)) == ElementsToLine(first);
      });
  return past_caches && alike && std::max(lists.source_count, lists.target_count) <= kFewArrays;
}

// Bit k: target k goes past the caches.
uint64_t TargetsPastCaches(const ReduceLists& lists, bool past_caches) {
  static_assert(kMaxReduceArrays <= 64);
  const void* const* const sources_end = lists.sources + lists.source_count;
  uint64_t targets = 0;
  for (int64_t k = 0; k < lists.target_count && past_caches; ++k) {
    const bool in_place = std::find(lists.sources, sources_end, lists.targets[k]) != sources_end;
    if (!in_place) targets |= uint64_t{1} << k;
  }
  return targets;
}

template <ReduceOp kOp, typename T>
void ReduceElements(const ReduceLists& lists, bool past_caches, int64_t begin, int64_t end) {
  const uint64_t streamed = TargetsPastCaches(lists, past_caches);
  const auto write = [&](int64_t k, int64_t at, const T* from, int64_t length) {
    T* const to = static_cast<T*>(lists.targets[k]) + at;
    const int64_t bytes = length * static_cast<int64_t>(sizeof(T));
    if ((streamed >> k & 1) != 0) {
      NontemporalStore(to, from, bytes);
    } else if (to != from) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  };
  const T* const first = static_cast<const T*>(lists.targets[0]);
  const int64_t most = TakesShortBlocks<T>(lists, past_caches) ? kShortBlock<T> : kNontemporalBlock;
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Wide = ReduceWide<T>;
    const LanesOf<decltype(simd)::kValue> lanes;
    const auto* const carry_in = static_cast<const Wide*>(lists.carry.in);
    auto* const carry_out = static_cast<Wide*>(lists.carry.out);
    const bool is_copy = lists.source_count == 1 && carry_in == nullptr && carry_out == nullptr;
    alignas(64) Wide sums[kNontemporalBlock];
    alignas(64) [[maybe_unused]] T narrow[kNontemporalBlock];
    constexpr bool kIsHalf = std::is_same_v<T, precision::Half>;
    alignas(64) float wide[kIsHalf ? kNontemporalBlock : 1];
    // `constant` is the length as an int64_t, or as a type: loops over short blocks are unrolled.
    const auto reduce = [&](int64_t i, auto constant) BRIGADE_SIMD_BODY {
      const int64_t length = constant;
      const T* result;
      if (is_copy) {
        result = static_cast<const T*>(lists.sources[0]) + i;
      } else {
        const size_t sums_bytes = static_cast<size_t>(length) * sizeof(Wide);
        if (carry_in != nullptr) std::memcpy(sums, carry_in + i, sums_bytes);
        ReduceBlock<kOp, T>(lanes, lists, i, length, carry_in == nullptr, sums, wide);
        if (carry_out != nullptr) {
          std::memcpy(carry_out + i, sums, sums_bytes);
          return;
        }
        if constexpr (std::is_same_v<T, Wide>) {
          result = sums;
        } else if constexpr (kIsHalf) {
          CastElements<Write::kReplace>(lanes, sums, narrow, length, 1.0f);
          result = narrow;
        } else {
          BRIGADE_SIMD_LOOP
          for (int64_t j = 0; j < length; ++j) narrow[j] = T(sums[j]);
          result = narrow;
        }
      }
      for (int64_t k = 0; k < lists.target_count; ++k) write(k, i, result, length);
    };
    ForEachNontemporalBlock(first, begin, end, most,
                            [&](int64_t i, int64_t length) BRIGADE_SIMD_BODY {
                              if (length == kShortBlock<T>) {
                                reduce(i, std::integral_constant<int64_t, kShortBlock<T>>());
                              } else {
                                reduce(i, length);
                              }
                            });
  });
}

}  // namespace

template <typename T>
void ReduceRange(const ReduceLists& lists, ReduceOp op, bool past_caches, int64_t begin,
                 int64_t end) {
  VisitReduceOp(op, [&](auto constant) {
    ReduceElements<decltype(constant)::value, T>(lists, past_caches, begin, end);
  });
}

#define BRIGADE_INSTANTIATE(T) \
  template void ReduceRange<T>(const ReduceLists&, ReduceOp, bool, int64_t, int64_t);
BRIGADE_FOR_EACH_REDUCE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
