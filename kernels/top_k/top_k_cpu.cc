// The greatest elements of an array on the CPU. A sample guesses a magnitude that a few more than k
// elements have, and one pass over the array finds those: it is read once, and nothing happens
// where 32 elements have none of them, which vectors find out. All else looks at these candidates.
// Whatever the sample says, the result is the same: where it says too much, all are candidates.

#include "brigade/kernels/top_k/top_k_cpu.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "brigade/kernels/simd.h"
#include "brigade/kernels/top_k/key_lanes.h"

namespace brigade::kernels {
namespace {

// Of the sample: few enough to cost nothing, and so many that its error is small.
constexpr int64_t kMostSampled = 16384;
constexpr int64_t kSampledOf = 32;

uint32_t* UnitsOf(const TopKSegment& s) { return s.workspace + kTopKBins + 2; }
TopKCandidates* CandidatesOf(const TopKSegment& s) {
  return reinterpret_cast<TopKCandidates*>(UnitsOf(s) + 2 * TopKUnits(s.size));
}

// Calls found(i, key) for the candidates of a unit with keys from `least` on.
template <typename T, typename Lanes, typename Found>
BRIGADE_INLINE void ForCandidatesFrom(Lanes lanes, const TopKSegment& s, uint32_t least,
                                      int64_t unit, const Found& found) {
  const T* const array = static_cast<const T*>(s.array);
  const TopKCandidates& candidates = CandidatesOf(s)[unit];
  const int64_t begin = unit * kTopKUnit;
  if (candidates.count == TopKCandidates::kEach) {
    ForKeysFrom(lanes, array, least, begin, std::min(s.size, begin + kTopKUnit), found);
    return;
  }
  for (uint32_t c = 0; c < candidates.count; ++c) {
    const uint32_t key = candidates.keys[c];
    if (key >= least) found(begin + candidates.offsets[c], key);
  }
}

}  // namespace

template <typename T>
uint32_t TopKGuess(const TopKSegment& s) {
  const int64_t count = std::min(kMostSampled, s.size / kSampledOf);
  if (count == 0) return 0;
  // As many of the sample as of the array, and three times the error of that.
  const double share = static_cast<double>(s.k) / static_cast<double>(s.size);
  const double expected = share * static_cast<double>(count);
  const auto rank = static_cast<int64_t>(expected + 3.0 * std::sqrt(expected) + 4.0);
  if (rank >= count / 16) return 0;
  const T* const array = static_cast<const T*>(s.array);
  const int64_t distance = s.size / count;
  uint32_t keys[kMostSampled];
  for (int64_t i = 0; i < count; ++i) keys[i] = TopKKey(array[i * distance]);
  std::nth_element(keys, keys + rank, keys + count, std::greater<uint32_t>());
  return keys[rank];
}

template <typename T>
int64_t TopKCollectRange(const TopKSegment& s, uint32_t least, int64_t begin, int64_t end) {
  const T* const array = static_cast<const T*>(s.array);
  int64_t all = 0;
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const LanesOf<decltype(simd)::kValue> lanes = {};
    for (int64_t from = begin; from < end; from += kTopKUnit) {
      const int64_t to = std::min(end, from + kTopKUnit);
      TopKCandidates& candidates = CandidatesOf(s)[from / kTopKUnit];
      if (least == 0) {
        candidates.count = TopKCandidates::kEach;
        all += to - from;
        continue;
      }
      uint32_t count = 0;
      ForKeysFrom(lanes, array, least, from, to, [&](int64_t i, uint32_t key) BRIGADE_SIMD_BODY {
        if (count < TopKCandidates::kMost) {
          candidates.keys[count] = key;
          candidates.offsets[count] = static_cast<uint16_t>(i - from);
        }
        ++count;
      });
      candidates.count =
          count <= TopKCandidates::kMost ? static_cast<uint16_t>(count) : TopKCandidates::kEach;
      all += count;
    }
  });
  return all;
}

template <typename T>
void TopKCountBinsRange(const TopKSegment& s, int pass, uint32_t known, int64_t begin,
                        int64_t end) {
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const LanesOf<decltype(simd)::kValue> lanes = {};
    // Equal keys come one after the other: a count waits for the one before it, but in another
    // table.
    constexpr int kTables = 4;
    uint32_t counts[kTables][kTopKBins] = {};
    for (int64_t unit = begin / kTopKUnit; unit * kTopKUnit < end; ++unit) {
      ForCandidatesFrom<T>(lanes, s, known, unit, [&](int64_t i, uint32_t key) BRIGADE_SIMD_BODY {
        if (TopKIsCandidate(key, known, pass)) ++counts[i % kTables][TopKBin(key, pass)];
      });
    }
    for (int bin = 0; bin < kTopKBins; ++bin) {
      uint32_t count = 0;
      for (const auto& table : counts) count += table[bin];
      if (count != 0) __atomic_fetch_add(&s.workspace[bin], count, __ATOMIC_RELAXED);
    }
  });
}

TopKSelection TopKPick(const TopKSegment& s, int pass, TopKSelection before) {
  uint32_t left = before.left;
  int bin = kTopKBins - 1;
  for (; bin > 0 && s.workspace[bin] < left; --bin) left -= s.workspace[bin];
  return {before.key | static_cast<uint32_t>(bin) << TopKShift(pass), left};
}

template <typename T>
void TopKCountUnitsRange(const TopKSegment& s, uint32_t key, int64_t begin, int64_t end) {
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const LanesOf<decltype(simd)::kValue> lanes = {};
    for (int64_t unit = begin / kTopKUnit; unit * kTopKUnit < end; ++unit) {
      uint32_t above = 0, equal = 0;
      ForCandidatesFrom<T>(lanes, s, key, unit, [&](int64_t, uint32_t found) BRIGADE_SIMD_BODY {
        above += found > key ? 1 : 0;
        equal += found == key ? 1 : 0;
      });
      UnitsOf(s)[2 * unit] = above;
      UnitsOf(s)[2 * unit + 1] = equal;
    }
  });
}

void TopKPlaceUnits(const TopKSegment& s) {
  uint32_t above = 0, equal = 0;
  uint32_t* const units = UnitsOf(s);
  for (int64_t u = 0; u < TopKUnits(s.size); ++u) {
    above += std::exchange(units[2 * u], above);
    equal += std::exchange(units[2 * u + 1], equal);
  }
}

template <typename T>
void TopKWriteRange(const TopKSegment& s, TopKSelection selection, bool clear, int64_t begin,
                    int64_t end) {
  T* const array = static_cast<T*>(s.array);
  T* const values = static_cast<T*>(s.values);
  const auto [least, left] = selection;
  uint32_t above = UnitsOf(s)[begin / kTopKUnit * 2];
  uint32_t equal = UnitsOf(s)[begin / kTopKUnit * 2 + 1];
  RunSimdWithTag([&, least = least, left = left](auto simd) BRIGADE_SIMD_BODY {
    const LanesOf<decltype(simd)::kValue> lanes = {};
    for (int64_t unit = begin / kTopKUnit; unit * kTopKUnit < end; ++unit) {
      ForCandidatesFrom<T>(lanes, s, least, unit, [&](int64_t i, uint32_t key) BRIGADE_SIMD_BODY {
        const uint32_t place = TopKPlace(above, equal, left);
        if (key == least ? equal++ >= left : (++above, false)) return;
        values[place] = array[i];
        s.indices[place] = static_cast<int32_t>(i);
        if (clear) array[i] = T(0.0f);
      });
    }
  });
}

template <typename T>
void TopKArray(const TopKSegment& s, bool clear) {
  uint32_t least = TopKGuess<T>(s);
  int64_t found = TopKCollectRange<T>(s, least, 0, s.size);
  if (found < s.k) found = TopKCollectRange<T>(s, least = 0, 0, s.size);
  TopKSelection selection = {0, static_cast<uint32_t>(s.k)};
  if (found <= kTopKBins) {
    // Of so few the k-th is known sooner than by counting bins.
    uint32_t* const keys = s.workspace;
    int64_t count = 0;
    for (int64_t unit = 0; unit < TopKUnits(s.size); ++unit) {
      ForCandidatesFrom<T>(NoLanes(), s, least, unit,
                           [&](int64_t, uint32_t key) { keys[count++] = key; });
    }
    std::nth_element(keys, keys + s.k - 1, keys + count, std::greater<uint32_t>());
    selection.key = keys[s.k - 1];
    for (int64_t i = 0; i < s.k; ++i) selection.left -= keys[i] > selection.key ? 1 : 0;
  } else {
    for (int pass = 0; pass < kTopKPasses; ++pass) {
      std::fill(s.workspace, s.workspace + kTopKBins, 0u);
      TopKCountBinsRange<T>(s, pass, selection.key, 0, s.size);
      selection = TopKPick(s, pass, selection);
    }
  }
  TopKCountUnitsRange<T>(s, selection.key, 0, s.size);
  TopKPlaceUnits(s);
  TopKWriteRange<T>(s, selection, clear, 0, s.size);
}

#define BRIGADE_INSTANTIATE(T)                                                              \
  template void TopKArray<T>(const TopKSegment&, bool);                                     \
  template uint32_t TopKGuess<T>(const TopKSegment&);                                       \
  template int64_t TopKCollectRange<T>(const TopKSegment&, uint32_t, int64_t, int64_t);     \
  template void TopKCountBinsRange<T>(const TopKSegment&, int, uint32_t, int64_t, int64_t); \
  template void TopKCountUnitsRange<T>(const TopKSegment&, uint32_t, int64_t, int64_t);     \
  template void TopKWriteRange<T>(const TopKSegment&, TopKSelection, bool, int64_t, int64_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
