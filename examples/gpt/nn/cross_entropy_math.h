#ifndef BRIGADE_EXAMPLES_GPT_NN_CROSS_ENTROPY_MATH_H_
#define BRIGADE_EXAMPLES_GPT_NN_CROSS_ENTROPY_MATH_H_

#include <cmath>
#include <cstdint>

#include "brigade/examples/gpt/nn/functions.h"
#include "brigade/examples/gpt/nn/rows.h"
#include "brigade/examples/gpt/nn/texts.h"

namespace brigade::nn {

// losses[r] = log(sum_c exp(logits[r, c])) - logits[r, target], in nats.
template <typename T>
struct CrossEntropyRows {
  Texts texts;
  const T* logits;
  Wide<T>* losses;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const T* const in = logits + r * columns;
    const W max =
        row.template Max<W>(columns, [&](int64_t c) BRIGADE_NN_BODY { return Widen(in[c]); });
    const W sum = row.template Sum<W>(
        columns, [&](int64_t c) BRIGADE_NN_BODY { return Exp(Widen(in[c]) - max); });
    if (row.first()) losses[r] = std::log(sum) + max - Widen(in[texts.target(r)]);
  }
};

// In place: the gradient of `seed / rows * sum of losses`, (softmax - one at the target) * seed /
// rows.
template <typename T>
struct CrossEntropyBackwardRows {
  Texts texts;
  T* logits;
  // The loss scale.
  const float* seed;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    T* const in = logits + r * columns;
    const W scale = W(*seed) / W(texts.rows());
    const W max =
        row.template Max<W>(columns, [&](int64_t c) BRIGADE_NN_BODY { return Widen(in[c]); });
    const W sum = row.template Sum<W>(
        columns, [&](int64_t c) BRIGADE_NN_BODY { return Exp(Widen(in[c]) - max); });
    const W inverse = W(1) / sum;
    const int64_t target = texts.target(r);
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const W probability = Exp(Widen(in[c]) - max) * inverse;
      in[c] = T((probability - (c == target ? W(1) : W(0))) * scale);
    });
  }
};

// mean = sum of losses[rows] / rows, in ascending order in double; one column.
template <typename T>
struct MeanLoss {
  const Wide<T>* losses;
  float* mean;
  int64_t rows;

  template <int kWidth>
  BRIGADE_INLINE void Columns(int64_t, int64_t) const {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += static_cast<double>(losses[r]);
    *mean = static_cast<float>(sum / static_cast<double>(rows));
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_EXAMPLES_GPT_NN_CROSS_ENTROPY_MATH_H_
