#ifndef BRIGADE_NN_ATTENTION_TILES_H_
#define BRIGADE_NN_ATTENTION_TILES_H_

// What the tiles of both passes share.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "brigade/kernels/simd.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/attention_math.h"
#include "brigade/nn/functions.h"
#include "brigade/nn/tile_operands.h"

namespace brigade::nn {

// Positions of a tile, so that the second-level cache has all that a thread works on.
template <typename W>
struct ForwardSizes {
  static constexpr int64_t kQueries = 512 / sizeof(W), kKeys = 256 / sizeof(W);
};
template <typename W>
struct BackwardSizes {
  // Of queries and of keys.
  static constexpr int64_t kTile = 256 / sizeof(W);
};

// Queries, keys and values of all heads. A head is numbered through all batches.
template <typename T>
struct Heads : AttentionArrays<T> {
  explicit Heads(const AttentionArrays<T>& arrays)
      : AttentionArrays<T>(arrays),
        unit(static_cast<Wide<T>>(std::numbers::log2e /
                                  std::sqrt(static_cast<double>(arrays.head_width)))) {}

  // Of scores for 2^x, as `scale` is for e^x.
  Wide<T> unit;
  // Where rows are counted from: the begin of a segment.
  int64_t begin = 0;

  // One segment of a text; the same if there are none.
  BRIGADE_INLINE Heads Segment(int64_t from, int64_t to) const {
    if (!this->segments.exist()) return *this;
    Heads segment = *this;
    segment.begin = from;
    segment.query_count = segment.key_count = to - from;
    return segment;
  }

  BRIGADE_INLINE RowsOf<const T> Queries(int64_t head, int64_t row, int64_t rows) const {
    return {this->Query(head, begin + row), this->query_leading, rows, this->head_width};
  }
  BRIGADE_INLINE RowsOf<const T> Keys(int64_t head, int64_t row, int64_t rows) const {
    return {this->Key(head, begin + row), this->key_leading, rows, this->head_width};
  }
  BRIGADE_INLINE RowsOf<const T> Values(int64_t head, int64_t row, int64_t rows) const {
    return {this->Value(head, begin + row), this->key_leading, rows, this->head_width};
  }
  // Where a row is among the numbers of all heads, as log_sum_exp.
  BRIGADE_INLINE int64_t Statistic(int64_t head, int64_t row) const {
    return head * this->context + begin + row;
  }
};

// Calls body(heads, first) for the tiles of kTile queries of a head that begin in a slot
// (segments.h), numbered from 0 for so many positions: `heads` are those of the tile's segment.
template <int64_t kTile, typename T, typename Body>
void ForTilesOfSlot(const Heads<T>& all, int64_t head, int64_t slot, const Body& body) {
  SegmentTile<kTile>::ForSlot(
      all.segments, head / all.heads, all.query_count, slot,
      [&](const SegmentTile<kTile>& tile) { body(all.Segment(tile.begin, tile.end), tile.first); });
}

// For the tiles of one thread, on its stack.
inline constexpr int64_t kScratchBytes = int64_t{512} << 10;

// Cuts memory into arrays that begin at whole vectors.
class Scratch {
 public:
  BRIGADE_INLINE explicit Scratch(char* memory) : memory_(memory) {}

  template <typename E>
  BRIGADE_INLINE E* Take(int64_t size) {
    E* const array = reinterpret_cast<E*>(memory_);
    memory_ += RoundUp(size * static_cast<int64_t>(sizeof(E)), 64);
    return array;
  }

 private:
  char* memory_;
};

// Calls body(Out()) for what is written: T, or Wide<T>.
template <typename T, typename Body>
BRIGADE_INLINE void WithWidth(bool is_wide, const Body& body) {
  if constexpr (sizeof(T) < sizeof(Wide<T>)) {
    if (is_wide) {
      body(Wide<T>());
      return;
    }
  }
  body(T());
}

// Calls body(Op()) with the operands to multiply numbers of type T with, compiled for the best
// instruction set.
template <typename T, typename Body>
void RunWithOperands(const Body& body) {
  kernels::RunSimdWithTag([&](auto tag) BRIGADE_SIMD_BODY {
    constexpr kernels::SimdTarget kTarget = decltype(tag)::kValue;
    using Pairs = std::conditional_t<std::is_same_v<T, precision::BFloat16> &&
                                         kTarget == kernels::SimdTarget::kAvx512,
                                     PairOperands, WideOperands<T, kTarget>>;
    if constexpr (Pairs::kDepth == 2) {
      if (Pairs::Available()) {
        body(Pairs());
        return;
      }
    }
    body(WideOperands<T, kTarget>());
  });
}

// How many vectors of columns a block of sums has.
template <typename Sums>
inline constexpr int kVectorsOf = static_cast<int>(std::extent_v<std::remove_reference_t<Sums>, 1>);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_TILES_H_
