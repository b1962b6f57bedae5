#ifndef BRIGADE_NN_LAYER_NORM_MATH_H_
#define BRIGADE_NN_LAYER_NORM_MATH_H_

// Source: Ba, Kiros and Hinton 2016 (arXiv 1607.06450).

#include <cmath>
#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

// y = normalised * weight + bias, normalised = (x - mean) * inverse_deviation, row by row.
template <typename T>
struct LayerNormRows {
  const T* x;
  const T* weight;
  const T* bias;
  T* y;
  Wide<T>* mean;
  Wide<T>* inverse_deviation;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const T* const in = x + r * columns;
    T* const out = y + r * columns;
    const W sum =
        row.template Sum<W>(columns, [&](int64_t c) BRIGADE_NN_BODY { return Widen(in[c]); });
    const W m = sum / W(columns);
    const W squares = row.template Sum<W>(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const W d = Widen(in[c]) - m;
      return d * d;
    });
    const W inverse = W(1) / std::sqrt(squares / W(columns) + W(1e-5));
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      out[c] = T((Widen(in[c]) - m) * inverse * Widen(weight[c]) + Widen(bias[c]));
    });
    if (row.first()) {
      mean[r] = m;
      inverse_deviation[r] = inverse;
    }
  }
};

// dx (+)= inverse_deviation * (g - mean(g) - normalised * mean(g * normalised)), g = dy * weight.
template <typename T>
struct LayerNormBackwardRows {
  const T* dy;
  const T* x;
  const T* weight;
  const Wide<T>* mean;
  const Wide<T>* inverse_deviation;
  T* dx;
  bool accumulate;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const T* const in = x + r * columns;
    const T* const up = dy + r * columns;
    T* const out = dx + r * columns;
    const W m = mean[r];
    const W inverse = inverse_deviation[r];
    const W g_sum = row.template Sum<W>(
        columns, [&](int64_t c) BRIGADE_NN_BODY { return Widen(up[c]) * Widen(weight[c]); });
    const W gn_sum = row.template Sum<W>(columns, [&](int64_t c) BRIGADE_NN_BODY {
      return Widen(up[c]) * Widen(weight[c]) * ((Widen(in[c]) - m) * inverse);
    });
    const W g_mean = g_sum / W(columns);
    const W gn_mean = gn_sum / W(columns);
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const W normalised = (Widen(in[c]) - m) * inverse;
      const W g = Widen(up[c]) * Widen(weight[c]);
      StoreGradient(out + c, accumulate, inverse * (g - g_mean - normalised * gn_mean));
    });
  }
};

// dweight (+)= sum over rows of dy * normalised, dbias (+)= sum of dy.
template <typename T>
struct LayerNormBackwardColumns {
  const T* dy;
  const T* x;
  const Wide<T>* mean;
  const Wide<T>* inverse_deviation;
  T* dweight;
  T* dbias;
  bool accumulate_weight;
  bool accumulate_bias;
  int64_t rows;
  int64_t columns;

  using Sum = Wide<T>;
  // Of dweight and of dbias.
  static constexpr int kSums = 2;

  BRIGADE_INLINE int64_t Rows(int64_t) const { return rows; }

  template <int kWidth>
  BRIGADE_INLINE void Add(int64_t, int64_t first, int64_t begin, int64_t end,
                          Sum (&sums)[kSums][kWidth]) const {
    for (int64_t r = begin; r < end; ++r) {
      const Sum m = mean[r];
      const Sum inverse = inverse_deviation[r];
      const T* const in = x + r * columns + first;
      const T* const up = dy + r * columns + first;
      for (int j = 0; j < kWidth; ++j) {
        sums[0][j] += Widen(up[j]) * ((Widen(in[j]) - m) * inverse);
        sums[1][j] += Widen(up[j]);
      }
    }
  }

  template <int kWidth>
  BRIGADE_INLINE void Store(int64_t, int64_t first, const Sum (&sums)[kSums][kWidth]) const {
    for (int j = 0; j < kWidth; ++j) {
      StoreGradient(dweight + first + j, accumulate_weight, sums[0][j]);
      StoreGradient(dbias + first + j, accumulate_bias, sums[1][j]);
    }
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_LAYER_NORM_MATH_H_
