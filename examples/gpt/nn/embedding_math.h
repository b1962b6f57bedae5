#ifndef BRIGADE_EXAMPLES_GPT_NN_EMBEDDING_MATH_H_
#define BRIGADE_EXAMPLES_GPT_NN_EMBEDDING_MATH_H_

#include <cstdint>

#include "brigade/examples/gpt/nn/functions.h"
#include "brigade/examples/gpt/nn/rows.h"
#include "brigade/examples/gpt/nn/texts.h"

namespace brigade::nn {

// x[b, t] = tokens[texts[b, t]] + positions[t]
template <typename T>
struct EmbeddingRows {
  Texts texts;
  const T* tokens;
  const T* positions;
  T* x;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const T* const token = tokens + texts.token(r) * columns;
    const T* const position = positions + r % texts.context * columns;
    T* const out = x + r * columns;
    row.ForEach(columns, [&](int64_t c)
                             BRIGADE_NN_BODY { out[c] = T(Widen(token[c]) + Widen(position[c])); });
  }
};

// dtokens[v] (+)= sum of dx[b, t] where texts[b, t] is v; `outer` is v.
template <typename T>
struct TokenGradient {
  Texts texts;
  const T* dx;
  T* dtokens;
  bool accumulate;
  int64_t columns;

  template <int kWidth>
  BRIGADE_INLINE void Columns(int64_t v, int64_t first) const {
    Wide<T> sum[kWidth] = {};
    for (int64_t r = 0; r < texts.rows(); ++r) {
      if (texts.token(r) != v) continue;
      for (int j = 0; j < kWidth; ++j) sum[j] += Widen(dx[r * columns + first + j]);
    }
    for (int j = 0; j < kWidth; ++j) {
      StoreGradient(dtokens + v * columns + first + j, accumulate, sum[j]);
    }
  }
};

// dpositions[t] (+)= sum over b of dx[b, t]; `outer` is t.
template <typename T>
struct PositionGradient {
  const T* dx;
  T* dpositions;
  bool accumulate;
  int64_t batch;
  int64_t context;
  int64_t columns;

  template <int kWidth>
  BRIGADE_INLINE void Columns(int64_t t, int64_t first) const {
    Wide<T> sum[kWidth] = {};
    for (int64_t b = 0; b < batch; ++b) {
      const T* const in = dx + (b * context + t) * columns + first;
      for (int j = 0; j < kWidth; ++j) sum[j] += Widen(in[j]);
    }
    for (int j = 0; j < kWidth; ++j) {
      StoreGradient(dpositions + t * columns + first + j, accumulate, sum[j]);
    }
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_EXAMPLES_GPT_NN_EMBEDDING_MATH_H_
