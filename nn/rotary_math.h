#ifndef BRIGADE_NN_ROTARY_MATH_H_
#define BRIGADE_NN_ROTARY_MATH_H_

// Source: Su et al. 2021 (arXiv 2104.09864).

#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"
#include "brigade/nn/segments.h"

namespace brigade::nn {

// (x_i, x_j) = (x_i cos - x_j sin, x_j cos + x_i sin), j = i + half, for each head; the rotation
// back where `direction` is -1.
template <typename T>
struct RotaryRows {
  T* x;
  // [positions, 2, half].
  const Wide<T>* table;
  int64_t context;
  int64_t first_position;
  int64_t heads;
  int64_t half;
  int64_t columns;
  Wide<T> direction;
  Segments segments = {};

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t t = r % context;
    const int64_t position = first_position + t - segments.Begin(r / context, t);
    const W* const cosines = table + position * 2 * half;
    const W* const sines = cosines + half;
    for (int64_t h = 0; h < heads; ++h) {
      T* const low = x + r * columns + h * 2 * half;
      T* const high = low + half;
      row.ForEach(half, [&](int64_t i) BRIGADE_NN_BODY {
        const W a = Widen(low[i]), b = Widen(high[i]);
        const W cosine = cosines[i], sine = direction * sines[i];
        low[i] = T(a * cosine - b * sine);
        high[i] = T(b * cosine + a * sine);
      });
    }
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ROTARY_MATH_H_
