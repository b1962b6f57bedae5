#ifndef BRIGADE_NN_SQUARED_ERROR_MATH_H_
#define BRIGADE_NN_SQUARED_ERROR_MATH_H_

#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

// losses[r] = mean over c of (y - t)^2
template <typename T>
struct SquaredErrorRows {
  const T* y;
  const Wide<T>* targets;
  Wide<T>* losses;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const T* const in = y + r * columns;
    const W* const target = targets + r * columns;
    const W sum = row.template Sum<W>(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const W difference = Widen(in[c]) - target[c];
      return difference * difference;
    });
    if (row.first()) losses[r] = sum / W(columns);
  }
};

// y = 2 seed (y - t) / columns
template <typename T>
struct SquaredErrorBackwardRows {
  T* y;
  const Wide<T>* targets;
  const float* seed;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    T* const in = y + r * columns;
    const W* const target = targets + r * columns;
    const W scale = W(2) * W(*seed) / W(columns);
    row.ForEach(columns,
                [&](int64_t c) BRIGADE_NN_BODY { in[c] = T((Widen(in[c]) - target[c]) * scale); });
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_SQUARED_ERROR_MATH_H_
