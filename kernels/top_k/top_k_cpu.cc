// The greatest elements of an array on the CPU. A sample guesses a magnitude that a few more than k
// elements have, and one pass over the array finds those: it is read once, and nothing happens
// where 32 elements have none of them, which vectors find out. These candidates are copied, those
// of 65,536 elements one behind the other, and all else looks at the copies. Whatever the sample
// says, the result is the same: where it says too much, all are candidates.

#include "brigade/kernels/top_k/top_k_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include "brigade/kernels/simd.h"
#include "brigade/kernels/top_k/key_lanes.h"

namespace brigade::kernels {
namespace {

// The greatest key, of a NaN.
constexpr uint32_t kGreatestKey = 0x7f800001u;

// Of the sample, which is of runs of kTopKTogether elements, since a cache line costs the same
// whole: at most so many runs, and one of at least so many elements. So many of the sample are
// expected among the k greatest where it is not cut short, within a fifth.
constexpr int64_t kMostRuns = 2048;
constexpr int64_t kSampledOf = 32;
constexpr int64_t kExpected = 256;
// More than the rank of any guess, by three times the error.
constexpr int64_t kMostRank = 2 * kExpected;

// How far ahead of the search for candidates lines are fetched, in bytes; 4 to 16 KiB measured
// alike.
constexpr int64_t kFetchAhead = 8192;

// The candidates of a chunk, in the workspace of its units.
template <typename T>
struct Candidates {
  // As count: any element of the chunk may be one.
  static constexpr uint32_t kEach = 0xffffffffu;

  uint32_t* count;
  T* values;
  // From the chunk's begin, ascending.
  uint16_t* offsets;
  uint32_t capacity;
};

template <typename T>
Candidates<T> CandidatesOf(const TopKSegment& s, int64_t begin) {
  const int64_t units = TopKUnits(s.size), unit = begin / kTopKUnit;
  const int64_t bytes = kTopKCandidateBytes * std::min(kTopKChunk / kTopKUnit, units - unit);
  constexpr int64_t kHead = 8;
  const int64_t capacity = (bytes - kHead) / static_cast<int64_t>(sizeof(T) + sizeof(uint16_t));
  char* const at =
      reinterpret_cast<char*>(s.workspace + kTopKBins + 2 + 2 * units) + unit * kTopKCandidateBytes;
  T* const values = reinterpret_cast<T*>(at + kHead);
  return {reinterpret_cast<uint32_t*>(at), values, reinterpret_cast<uint16_t*>(values + capacity),
          static_cast<uint32_t>(capacity)};
}

// Of each chunk, the candidates above the k-th key and those that have it.
uint32_t* CountsOf(const TopKSegment& s, int64_t begin) {
  return s.workspace + kTopKBins + 2 + begin / kTopKChunk * 2;
}

// Calls run(values, offsets, count, begin) for the chunks of [begin, end): with the candidates of
// each, or with all its elements and null.
template <typename T, typename Run>
BRIGADE_INLINE void ForChunks(const TopKSegment& s, int64_t begin, int64_t end, const Run& run) {
  for (int64_t from = begin; from < end; from += kTopKChunk) {
    const Candidates<T> c = CandidatesOf<T>(s, from);
    if (*c.count == Candidates<T>::kEach) {
      run(static_cast<const T*>(s.array) + from, static_cast<const uint16_t*>(nullptr),
          std::min(kTopKChunk, end - from), from);
    } else {
      run(static_cast<const T*>(c.values), static_cast<const uint16_t*>(c.offsets),
          static_cast<int64_t>(*c.count), from);
    }
  }
}

// Calls visit(first, keys, count) for groups of values of which one has a key that is
// [from, from + size).
template <typename T, typename Visit>
BRIGADE_INLINE void ForGroups(const T* values, int64_t count, uint32_t from, uint32_t size,
                              const Visit& visit) {
  for (int64_t i = 0; i < count; i += kTopKTogether) {
    alignas(64) uint32_t keys[kTopKTogether];
    int inside = 0;
    if (count - i >= kTopKTogether) {
      BRIGADE_SIMD_LOOP
      for (int64_t j = 0; j < kTopKTogether; ++j) {
        const uint32_t key = TopKKey(values[i + j]);
        keys[j] = key;
        inside += key - from < size ? 1 : 0;
      }
    } else {
      for (int64_t j = 0; j < count - i; ++j) {
        keys[j] = TopKKey(values[i + j]);
        inside += keys[j] - from < size ? 1 : 0;
      }
    }
    if (inside != 0) visit(i, keys, std::min(kTopKTogether, count - i));
  }
}

// Leaves of `count` keys those up to that of `rank`, counted from 0, which it returns.
uint32_t Rank(uint32_t* keys, int64_t rank, int64_t count) {
  std::nth_element(keys, keys + rank, keys + count, std::greater<uint32_t>());
  return keys[rank];
}

// Makes an array of one chunk its candidates, without a sample, where there is room for twice as
// many as are selected: whenever these are so many, only the k greatest stay, and only what is
// greater is taken from there on. Returns their number, or 0 without room.
template <typename T>
int64_t CollectGreatest(const TopKSegment& s) {
  constexpr int64_t kPiece = 2 * kTopKTogether;
  const Candidates<T> c = CandidatesOf<T>(s, 0);
  const int64_t limit = 2 * s.k + kPiece;
  if (s.size > kTopKChunk || limit + kPiece > c.capacity || limit + kPiece > kTopKBins) return 0;
  const T* const array = static_cast<const T*>(s.array);
  int64_t count = 0;
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const LanesOf<decltype(simd)::kValue> lanes = {};
    uint32_t least = 0;
    for (int64_t i = 0; i < s.size; i += kPiece) {
      ForKeysFrom(lanes, array, least, i, std::min(s.size, i + kPiece),
                  [&](int64_t at, uint32_t) BRIGADE_SIMD_BODY {
                    c.values[count] = array[at];
                    c.offsets[count++] = static_cast<uint16_t>(at);
                  });
      if (count < limit) continue;
      for (int64_t j = 0; j < count; ++j) s.workspace[j] = TopKKey(c.values[j]);
      const uint32_t kth = Rank(s.workspace, s.k - 1, count);
      int64_t left = s.k, kept = 0;
      for (int64_t j = 0; j < s.k; ++j) left -= s.workspace[j] > kth ? 1 : 0;
      for (int64_t j = 0; j < count; ++j) {
        const uint32_t key = TopKKey(c.values[j]);
        const bool is_equal = key == kth && left > 0;
        c.values[kept] = c.values[j];
        c.offsets[kept] = c.offsets[j];
        kept += key > kth || is_equal ? 1 : 0;
        left -= is_equal ? 1 : 0;
      }
      count = kept, least = kth + 1;
    }
  });
  *c.count = static_cast<uint32_t>(count);
  return count;
}

}  // namespace

template <typename T>
uint32_t TopKGuess(const TopKSegment& s) {
  const double share = static_cast<double>(s.k) / static_cast<double>(s.size);
  const auto wanted = static_cast<int64_t>(static_cast<double>(kExpected) / share);
  const int64_t runs =
      std::min({kMostRuns, s.size / kSampledOf / kTopKTogether, wanted / kTopKTogether + 1});
  if (runs == 0) return 0;
  // As many of the sample as of the array, and three times the error of that.
  const int64_t count = runs * kTopKTogether;
  const double expected = share * static_cast<double>(count);
  const auto rank = static_cast<int64_t>(expected + 3.0 * std::sqrt(expected) + 4.0);
  if (rank >= count / 16 || rank >= kMostRank) return 0;
  const T* const array = static_cast<const T*>(s.array);
  const int64_t distance = s.size / runs;
  // Those of the sample that may be of the rank.
  uint32_t keys[2 * kMostRank + kTopKTogether];
  int64_t kept = 0;
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const LanesOf<decltype(simd)::kValue> lanes = {};
    uint32_t least = 0;
    for (int64_t run = 0; run < runs; ++run) {
      const int64_t at = run * distance;
      ForKeysFrom(lanes, array, least, at, at + kTopKTogether,
                  [&](int64_t, uint32_t key) BRIGADE_SIMD_BODY { keys[kept++] = key; });
      if (kept <= 2 * kMostRank) continue;
      least = Rank(keys, rank, kept) + 1;
      kept = rank + 1;
    }
  });
  return Rank(keys, rank, kept);
}

template <typename T>
TopKFound TopKCollectRange(const TopKSegment& s, uint32_t least, int64_t begin, int64_t end) {
  const T* const array = static_cast<const T*>(s.array);
  TopKFound all = {0, 0};
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const LanesOf<decltype(simd)::kValue> lanes = {};
    uint32_t greatest = 0;
    for (int64_t from = begin; from < end; from += kTopKChunk) {
      const int64_t to = std::min(end, from + kTopKChunk);
      const Candidates<T> c = CandidatesOf<T>(s, from);
      if (least == 0) {
        *c.count = Candidates<T>::kEach;
        all.count += to - from;
        greatest = kGreatestKey;
        continue;
      }
      uint32_t count = 0;
      ForKeysFrom<kFetchAhead>(lanes, array, least, from, to,
                               [&](int64_t i, uint32_t key) BRIGADE_SIMD_BODY {
                                 if (count < c.capacity) {
                                   c.values[count] = array[i];
                                   c.offsets[count] = static_cast<uint16_t>(i - from);
                                 }
                                 greatest = std::max(greatest, key);
                                 ++count;
                               });
      *c.count = count <= c.capacity ? count : Candidates<T>::kEach;
      all.count += count;
    }
    all.greatest = greatest;
  });
  return all;
}

TopKSearch TopKSearchFrom(uint32_t least, const TopKFound& found, int64_t k) {
  int shift = 0;
  while ((found.greatest - least) >> shift >= kTopKBins) ++shift;
  return {least, found.greatest - least + 1, shift, static_cast<uint32_t>(k), false};
}

template <typename T>
void TopKCountBinsRange(const TopKSegment& s, const TopKSearch& search, int64_t begin,
                        int64_t end) {
  RunSimd([&, from = search.from, span = search.size, shift = search.shift]() BRIGADE_SIMD_BODY {
    // Equal keys come one after the other: a count waits for the one before it, but in another
    // table.
    constexpr int kTables = 4;
    uint32_t counts[kTables][kTopKBins] = {};
    ForChunks<T>(s, begin, end,
                 [&](const T* values, const uint16_t*, int64_t count, int64_t) BRIGADE_SIMD_BODY {
                   ForGroups(values, count, from, span,
                             [&](int64_t, const uint32_t* keys, int64_t size) BRIGADE_SIMD_BODY {
                               for (int64_t j = 0; j < size; ++j) {
                                 const uint32_t past = keys[j] - from;
                                 if (past < span) ++counts[j % kTables][past >> shift];
                               }
                             });
                 });
    for (int bin = 0; bin < kTopKBins; ++bin) {
      uint32_t count = 0;
      for (const auto& table : counts) count += table[bin];
      if (count != 0) __atomic_fetch_add(&s.workspace[bin], count, __ATOMIC_RELAXED);
    }
  });
}

template <typename T>
TopKSearch TopKPick(const TopKSegment& s, const TopKSearch& before) {
  TopKSearch next = before;
  int bin = kTopKBins - 1;
  for (; bin > 0 && s.workspace[bin] < next.left; --bin) next.left -= s.workspace[bin];
  next.from += static_cast<uint32_t>(bin) << before.shift;
  next.size = 1u << before.shift;
  next.shift = std::max(0, before.shift - 11);
  next.done = before.shift == 0;
  // Keys of 16-bit types end with zeros: but for infinity beside NaN, so few have one that does.
  constexpr int kZeros = std::is_same_v<T, precision::Half>       ? 13
                         : std::is_same_v<T, precision::BFloat16> ? 16
                                                                  : 0;
  constexpr uint32_t kInfinity = kGreatestKey - 1, kBelow = (1u << kZeros) - 1;
  if (before.shift <= kZeros && next.from + next.size <= kInfinity) {
    next.from = (next.from + kBelow) & ~kBelow;
    next.done = true;
  }
  return next;
}

template <typename T>
void TopKCountChunksRange(const TopKSegment& s, uint32_t key, int64_t begin, int64_t end) {
  RunSimd([&]() BRIGADE_SIMD_BODY {
    ForChunks<T>(s, begin, end,
                 [&](const T* values, const uint16_t*, int64_t count, int64_t from)
                     BRIGADE_SIMD_BODY {
                       uint32_t above = 0, equal = 0;
                       BRIGADE_SIMD_LOOP
                       for (int64_t i = 0; i < count; ++i) {
                         const uint32_t found = TopKKey(values[i]);
                         above += found > key ? 1 : 0;
                         equal += found == key ? 1 : 0;
                       }
                       CountsOf(s, from)[0] = above;
                       CountsOf(s, from)[1] = equal;
                     });
  });
}

void TopKPlaceChunks(const TopKSegment& s) {
  uint32_t above = 0, equal = 0;
  for (int64_t begin = 0; begin < s.size; begin += kTopKChunk) {
    above += std::exchange(CountsOf(s, begin)[0], above);
    equal += std::exchange(CountsOf(s, begin)[1], equal);
  }
}

template <typename T>
void TopKWriteRange(const TopKSegment& s, TopKSelection selection, bool clear, int64_t begin,
                    int64_t end) {
  T* const array = static_cast<T*>(s.array);
  const auto [least, left] = selection;
  RunSimd([&, least = least, left = left]() BRIGADE_SIMD_BODY {
    // What is selected comes here first, without a branch that no processor foresees.
    constexpr int64_t kBuffer = 256;
    T values[kBuffer];
    int32_t indices[kBuffer];
    int64_t kept = 0;
    uint32_t equal = CountsOf(s, begin)[1];
    int64_t place = TopKPlace(CountsOf(s, begin)[0], equal, left);
    const auto flush = [&]() BRIGADE_SIMD_BODY {
      if (kept == 0) return;
      std::memcpy(static_cast<T*>(s.values) + place, values, static_cast<size_t>(kept) * sizeof(T));
      std::memcpy(s.indices + place, indices, static_cast<size_t>(kept) * sizeof(int32_t));
      for (int64_t j = 0; j < kept && clear; ++j) array[indices[j]] = T(0.0f);
      place += kept;
      kept = 0;
    };
    ForChunks<T>(
        s, begin, end,
        [&](const T* found, const uint16_t* offsets, int64_t count, int64_t from)
            BRIGADE_SIMD_BODY {
              ForGroups(found, count, least, kGreatestKey + 1 - least,
                        [&](int64_t first, const uint32_t* keys, int64_t size) BRIGADE_SIMD_BODY {
                          if (kept + size > kBuffer) flush();
                          for (int64_t j = 0; j < size; ++j) {
                            const int64_t i = first + j;
                            const bool has = keys[j] == least;
                            const bool is_kept = keys[j] > least || (has && equal < left);
                            values[kept] = found[i];
                            indices[kept] =
                                static_cast<int32_t>(from + (offsets == nullptr ? i : offsets[i]));
                            equal += has ? 1 : 0;
                            kept += is_kept ? 1 : 0;
                          }
                        });
            });
    flush();
  });
}

template <typename T>
void TopKArray(const TopKSegment& s, bool clear) {
  uint32_t least = 0;
  TopKFound found = {CollectGreatest<T>(s), kGreatestKey};
  if (found.count == 0) {
    least = TopKGuess<T>(s);
    found = TopKCollectRange<T>(s, least, 0, s.size);
    if (found.count < s.k) found = TopKCollectRange<T>(s, least = 0, 0, s.size);
  }
  TopKSelection selection = {0, static_cast<uint32_t>(s.k)};
  if (found.count <= kTopKBins) {
    // Of so few the k-th is known sooner than by counting bins.
    uint32_t* const keys = s.workspace;
    int64_t count = 0;
    ForChunks<T>(s, 0, s.size, [&](const T* values, const uint16_t*, int64_t size, int64_t) {
      for (int64_t i = 0; i < size; ++i) {
        const uint32_t key = TopKKey(values[i]);
        if (key >= least) keys[count++] = key;
      }
    });
    selection.key = Rank(keys, s.k - 1, count);
    for (int64_t i = 0; i < s.k; ++i) selection.left -= keys[i] > selection.key ? 1 : 0;
  } else {
    TopKSearch search = TopKSearchFrom(least, found, s.k);
    while (!search.done) {
      std::fill(s.workspace, s.workspace + kTopKBins, 0u);
      TopKCountBinsRange<T>(s, search, 0, s.size);
      search = TopKPick<T>(s, search);
    }
    selection = {search.from, search.left};
  }
  TopKCountChunksRange<T>(s, selection.key, 0, s.size);
  TopKPlaceChunks(s);
  TopKWriteRange<T>(s, selection, clear, 0, s.size);
}

#define BRIGADE_INSTANTIATE(T)                                                                  \
  template void TopKArray<T>(const TopKSegment&, bool);                                         \
  template uint32_t TopKGuess<T>(const TopKSegment&);                                           \
  template TopKFound TopKCollectRange<T>(const TopKSegment&, uint32_t, int64_t, int64_t);       \
  template void TopKCountBinsRange<T>(const TopKSegment&, const TopKSearch&, int64_t, int64_t); \
  template TopKSearch TopKPick<T>(const TopKSegment&, const TopKSearch&);                       \
  template void TopKCountChunksRange<T>(const TopKSegment&, uint32_t, int64_t, int64_t);        \
  template void TopKWriteRange<T>(const TopKSegment&, TopKSelection, bool, int64_t, int64_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
