#ifndef BRIGADE_NN_SWIGLU_MATH_H_
#define BRIGADE_NN_SWIGLU_MATH_H_

// Source: Shazeer 2020 (arXiv 2002.05202).

#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

// y = silu(gate) * up
template <typename T>
struct SwigluRows {
  const T* x;
  T* y;
  int64_t width;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const T* const gate = x + r * 2 * width;
    const T* const up = gate + width;
    T* const out = y + r * width;
    row.ForEach(width, [&](int64_t c) BRIGADE_NN_BODY {
      out[c] = T(Silu(Widen(gate[c])).value() * Widen(up[c]));
    });
  }
};

// dgate (+)= dy * up * silu'(gate), dup (+)= dy * silu(gate)
template <typename T>
struct SwigluBackwardRows {
  const T* x;
  const T* dy;
  T* dx;
  bool accumulate;
  int64_t width;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const T* const gate = x + r * 2 * width;
    const T* const up = gate + width;
    const T* const in = dy + r * width;
    T* const dgate = dx + r * 2 * width;
    T* const dup = dgate + width;
    row.ForEach(width, [&](int64_t c) BRIGADE_NN_BODY {
      const Silu silu(Widen(gate[c]));
      const Wide<T> gradient = Widen(in[c]), through = Widen(up[c]);
      StoreGradient(dgate + c, accumulate, gradient * through * silu.slope());
      StoreGradient(dup + c, accumulate, gradient * silu.value());
    });
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_SWIGLU_MATH_H_
