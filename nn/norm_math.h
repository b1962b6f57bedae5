#ifndef BRIGADE_NN_NORM_MATH_H_
#define BRIGADE_NN_NORM_MATH_H_

// Layer normalisation, which is centred, and RMS normalisation, which is not: the mean is 0 and
// there is no bias. Source: Ba, Kiros and Hinton 2016 (arXiv 1607.06450); Zhang and Sennrich 2019
// (arXiv 1910.07467).

#include <cmath>
#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

// y = normalised * weight + bias, normalised = (x - mean) * inverse_deviation, row by row. Unless
// kCentred, bias and mean are not used.
template <typename T, bool kCentred>
struct NormRows {
  const T* x;
  const T* weight;
  const T* bias;
  T* y;
  Wide<T>* mean;
  Wide<T>* inverse_deviation;
  int64_t columns;
  Wide<T> epsilon;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const T* const in = x + r * columns;
    T* const out = y + r * columns;
    W m = W(0);
    if constexpr (kCentred) {
      const W sum =
          row.template Sum<W>(columns, [&](int64_t c) BRIGADE_NN_BODY { return Widen(in[c]); });
      m = sum / W(columns);
    }
    const W squares = row.template Sum<W>(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const W d = Widen(in[c]) - m;
      return d * d;
    });
    const W inverse = W(1) / std::sqrt(squares / W(columns) + epsilon);
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const W scaled = (Widen(in[c]) - m) * inverse * Widen(weight[c]);
      if constexpr (kCentred) {
        out[c] = T(scaled + Widen(bias[c]));
      } else {
        out[c] = T(scaled);
      }
    });
    if (row.first()) {
      if constexpr (kCentred) mean[r] = m;
      inverse_deviation[r] = inverse;
    }
  }
};

// dx (+)= inverse_deviation * (g - mean(g) - normalised * mean(g * normalised)), g = dy * weight;
// without mean(g) unless kCentred.
template <typename T, bool kCentred>
struct NormBackwardRows {
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
    const W m = kCentred ? mean[r] : W(0);
    const W inverse = inverse_deviation[r];
    W g_mean = W(0);
    if constexpr (kCentred) {
      const W g_sum = row.template Sum<W>(
          columns, [&](int64_t c) BRIGADE_NN_BODY { return Widen(up[c]) * Widen(weight[c]); });
      g_mean = g_sum / W(columns);
    }
    const W gn_sum = row.template Sum<W>(columns, [&](int64_t c) BRIGADE_NN_BODY {
      return Widen(up[c]) * Widen(weight[c]) * ((Widen(in[c]) - m) * inverse);
    });
    const W gn_mean = gn_sum / W(columns);
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const W normalised = (Widen(in[c]) - m) * inverse;
      const W g = Widen(up[c]) * Widen(weight[c]);
      StoreGradient(out + c, accumulate, inverse * (g - g_mean - normalised * gn_mean));
    });
  }
};

// dweight (+)= sum over rows of dy * normalised, and if kCentred dbias (+)= sum of dy; what is null
// is left out.
template <typename T, bool kCentred>
struct NormBackwardColumns {
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
  static constexpr int kSums = kCentred ? 2 : 1;

  BRIGADE_INLINE int64_t Rows(int64_t) const { return rows; }

  template <int kWidth>
  BRIGADE_INLINE void Add(int64_t, int64_t first, int64_t begin, int64_t end,
                          Sum (&sums)[kSums][kWidth]) const {
    for (int64_t r = begin; r < end; ++r) {
      const Sum m = kCentred ? mean[r] : Sum(0);
      const Sum inverse = inverse_deviation[r];
      const T* const in = x + r * columns + first;
      const T* const up = dy + r * columns + first;
      for (int j = 0; j < kWidth; ++j) {
        sums[0][j] += Widen(up[j]) * ((Widen(in[j]) - m) * inverse);
        if constexpr (kCentred) sums[1][j] += Widen(up[j]);
      }
    }
  }

  template <int kWidth>
  BRIGADE_INLINE void Store(int64_t, int64_t first, const Sum (&sums)[kSums][kWidth]) const {
    for (int j = 0; j < kWidth; ++j) {
      if (dweight != nullptr) StoreGradient(dweight + first + j, accumulate_weight, sums[0][j]);
      if constexpr (kCentred) {
        if (dbias != nullptr) StoreGradient(dbias + first + j, accumulate_bias, sums[1][j]);
      }
    }
  }
};

template <typename T>
using LayerNormRows = NormRows<T, true>;
template <typename T>
using LayerNormBackwardRows = NormBackwardRows<T, true>;
template <typename T>
using LayerNormBackwardColumns = NormBackwardColumns<T, true>;

template <typename T>
using RmsNormRows = NormRows<T, false>;
template <typename T>
using RmsNormBackwardRows = NormBackwardRows<T, false>;
template <typename T>
using RmsNormBackwardColumns = NormBackwardColumns<T, false>;

}  // namespace brigade::nn

#endif  // BRIGADE_NN_NORM_MATH_H_
