#ifndef BRIGADE_NN_ATTENTION_MATH_H_
#define BRIGADE_NN_ATTENTION_MATH_H_

// Source: Vaswani et al. 2017 (arXiv 1706.03762).

#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

// In place on scores [.., context, context]: softmax(scores) over the columns up to the row's own
// position, 0 behind it.
template <typename T>
struct CausalSoftmaxRows {
  T* scores;
  int64_t context;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    T* const s = scores + r * context;
    const int64_t visible = r % context + 1;
    const W max =
        row.template Max<W>(visible, [&](int64_t c) BRIGADE_NN_BODY { return Widen(s[c]); });
    const W sum = row.template Sum<W>(
        visible, [&](int64_t c) BRIGADE_NN_BODY { return Exp(Widen(s[c]) - max); });
    const W inverse = W(1) / sum;
    row.ForEach(visible,
                [&](int64_t c) BRIGADE_NN_BODY { s[c] = T(Exp(Widen(s[c]) - max) * inverse); });
    row.ForEach(context - visible, [&](int64_t c) BRIGADE_NN_BODY { s[visible + c] = T(W(0)); });
  }
};

// In place on the gradient of the probabilities, which becomes that of the scores:
// d = p * (d - sum(d * p)).
template <typename T>
struct CausalSoftmaxBackwardRows {
  const T* probabilities;
  T* gradient;
  int64_t context;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const T* const p = probabilities + r * context;
    T* const d = gradient + r * context;
    const int64_t visible = r % context + 1;
    const W dot = row.template Sum<W>(
        visible, [&](int64_t c) BRIGADE_NN_BODY { return Widen(p[c]) * Widen(d[c]); });
    row.ForEach(visible,
                [&](int64_t c) BRIGADE_NN_BODY { d[c] = T(Widen(p[c]) * (Widen(d[c]) - dot)); });
    row.ForEach(context - visible, [&](int64_t c) BRIGADE_NN_BODY { d[visible + c] = T(W(0)); });
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_MATH_H_
