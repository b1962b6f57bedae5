#ifndef BRIGADE_NN_POINTWISE_MATH_H_
#define BRIGADE_NN_POINTWISE_MATH_H_

#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

// x = x + bias (+ residual)
template <typename T>
struct AddBiasRows {
  T* x;
  const T* bias;
  // May be null.
  const T* residual;
  int64_t columns;
  // Of x.
  int64_t leading;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    T* const in = x + r * leading;
    if (residual == nullptr) {
      row.ForEach(columns,
                  [&](int64_t c) BRIGADE_NN_BODY { in[c] = T(Widen(in[c]) + Widen(bias[c])); });
    } else {
      const T* const add = residual + r * columns;
      row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
        in[c] = T(Widen(in[c]) + Widen(bias[c]) + Widen(add[c]));
      });
    }
  }
};

// x = x + bias, y = gelu(x)
template <typename T>
struct AddBiasGeluRows {
  T* x;
  const T* bias;
  T* y;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    T* const in = x + r * columns;
    T* const out = y + r * columns;
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const Wide<T> sum = Widen(T(Widen(in[c]) + Widen(bias[c])));
      in[c] = T(sum);
      out[c] = T(GeluAt(sum).value());
    });
  }
};

// y = gelu(x)
template <typename T>
struct GeluRows {
  const T* x;
  T* y;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const T* const in = x + r * columns;
    T* const out = y + r * columns;
    row.ForEach(columns,
                [&](int64_t c) BRIGADE_NN_BODY { out[c] = T(GeluAt(Widen(in[c])).value()); });
  }
};

// dy = dy * gelu'(x)
template <typename T>
struct GeluBackwardRows {
  const T* x;
  T* dy;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const T* const in = x + r * columns;
    T* const up = dy + r * columns;
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      up[c] = T(Widen(up[c]) * GeluAt(Widen(in[c])).slope());
    });
  }
};

// y = x > 0 ? x : 0, with NaN as it is
template <typename T>
struct ReluRows {
  const T* x;
  T* y;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const T* const in = x + r * columns;
    T* const out = y + r * columns;
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const Wide<T> value = Widen(in[c]);
      out[c] = T(value <= Wide<T>(0) ? Wide<T>(0) : value);
    });
  }
};

// dy = y != 0 ? dy : 0
template <typename T>
struct ReluBackwardRows {
  const T* y;
  T* dy;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const T* const in = y + r * columns;
    T* const up = dy + r * columns;
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      up[c] = T(Widen(in[c]) == Wide<T>(0) ? Wide<T>(0) : Widen(up[c]));
    });
  }
};

// sum (+)= sum over rows of x
template <typename T>
struct SumOfRows {
  const T* x;
  T* sum;
  bool accumulate;
  int64_t rows;
  int64_t columns;
  // Of x.
  int64_t leading;

  using Sum = Wide<T>;
  static constexpr int kSums = 1;

  BRIGADE_INLINE int64_t Rows(int64_t) const { return rows; }

  template <int kWidth>
  BRIGADE_INLINE void Add(int64_t, int64_t first, int64_t begin, int64_t end,
                          Sum (&sums)[kSums][kWidth]) const {
    for (int64_t r = begin; r < end; ++r) {
      for (int j = 0; j < kWidth; ++j) sums[0][j] += Widen(x[r * leading + first + j]);
    }
  }

  template <int kWidth>
  BRIGADE_INLINE void Store(int64_t, int64_t first, const Sum (&sums)[kSums][kWidth]) const {
    for (int j = 0; j < kWidth; ++j) StoreGradient(sum + first + j, accumulate, sums[0][j]);
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_POINTWISE_MATH_H_
