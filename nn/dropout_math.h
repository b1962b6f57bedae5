#ifndef BRIGADE_NN_DROPOUT_MATH_H_
#define BRIGADE_NN_DROPOUT_MATH_H_

// Source: Srivastava et al. 2014.

#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/philox.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

// A row of DropoutRows: so many elements, or what is left of them. Untuned.
inline constexpr int64_t kBlocksOfRow = 256;
inline constexpr int64_t kElementsOfBlock = 4;

// The rows in which elements [first, first + size) lie; rows begin at multiples of their length.
BRIGADE_INLINE constexpr int64_t DropoutRowsOf(int64_t first, int64_t size) {
  constexpr int64_t kElements = kBlocksOfRow * kElementsOfBlock;
  return size == 0 ? 0 : (first + size - 1) / kElements - first / kElements + 1;
}

// y = x * scale or 0, and + residual unless it is null.
template <typename T>
struct DropoutRows {
  const T* x;
  const T* residual;
  T* y;
  int64_t first;
  int64_t size;
  uint64_t seed;
  uint32_t layer;
  // Not read where nothing is dropped.
  const int64_t* step;
  // Words below it drop their elements.
  uint32_t threshold;
  Wide<T> scale;

  BRIGADE_INLINE void Store(int64_t i, uint32_t word) const {
    const Wide<T> kept = word >= threshold ? Widen(x[i]) * scale : Wide<T>(0);
    y[i] = T(residual == nullptr ? kept : kept + Widen(residual[i]));
  }

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const int64_t first_block = (first / (kBlocksOfRow * kElementsOfBlock) + r) * kBlocksOfRow;
    const auto now = threshold == 0 ? 0 : static_cast<uint32_t>(*step);
    row.ForEach(kBlocksOfRow, [&](int64_t b) BRIGADE_NN_BODY {
      const auto block = static_cast<uint64_t>(first_block + b);
      PhiloxWords words = {};
      if (threshold != 0) {
        words = Philox(
            {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), layer, now}}, seed);
      }
      const int64_t begin = (first_block + b) * kElementsOfBlock - first;
      for (int64_t j = 0; j < kElementsOfBlock; ++j) {
        if (begin + j >= 0 && begin + j < size) Store(begin + j, words.word[j]);
      }
    });
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_DROPOUT_MATH_H_
