#ifndef BRIGADE_NN_CROSS_ENTROPY_MATH_H_
#define BRIGADE_NN_CROSS_ENTROPY_MATH_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"
#include "brigade/nn/token_ids.h"

namespace brigade::nn {

// losses[r] = log(sum_c exp(logits[r, c])) - logits[r, target], in nats; NaN without a target,
// 0 where it is ignored.
template <typename T>
struct CrossEntropyRows {
  TokenIds ids;
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
    if (!row.first()) return;
    const int64_t target = ids.target(r);
    if (target == TokenIds::kIgnored) {
      losses[r] = W(0);
      return;
    }
    // The difference first: logarithm and loss may be far smaller than the logits.
    losses[r] = target == TokenIds::kNone ? std::numeric_limits<W>::quiet_NaN()
                                          : std::log(sum) - (Widen(in[target]) - max);
  }
};

// In place: the gradient of `seed / divisor * sum of losses`: (softmax - one at the target) * (seed
// / divisor); NaN without a target, 0 where it is ignored.
template <typename T>
struct CrossEntropyBackwardRows {
  TokenIds ids;
  T* logits;
  // The loss scale.
  const float* seed;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    T* const in = logits + r * columns;
    const int64_t target = ids.target(r);
    if (target == TokenIds::kIgnored) {
      row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY { in[c] = T(W(0)); });
      return;
    }
    const W scale = target == TokenIds::kNone ? std::numeric_limits<W>::quiet_NaN()
                                              : W(*seed) / W(ids.divisor());
    const W max =
        row.template Max<W>(columns, [&](int64_t c) BRIGADE_NN_BODY { return Widen(in[c]); });
    const W sum = row.template Sum<W>(
        columns, [&](int64_t c) BRIGADE_NN_BODY { return Exp(Widen(in[c]) - max); });
    const W inverse = W(1) / sum;
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      const W probability = Exp(Widen(in[c]) - max) * inverse;
      in[c] = T((probability - (c == target ? W(1) : W(0))) * scale);
    });
  }
};

// A row of LossPart.
inline constexpr int64_t kLossesOfPart = 256;

BRIGADE_INLINE constexpr int64_t LossParts(int64_t rows) {
  return (rows + kLossesOfPart - 1) / kLossesOfPart;
}

// parts[r] = the sum of losses r * kLossesOfPart and so on, in double, in which sums of so many
// floats round seldom: hence the order, in which devices differ, hardly matters.
template <typename T>
struct LossPart {
  const Wide<T>* losses;
  double* parts;
  int64_t rows;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const Wide<T>* const in = losses + r * kLossesOfPart;
    const int64_t left = rows - r * kLossesOfPart;
    const double sum = row.template Sum<double>(
        left < kLossesOfPart ? left : kLossesOfPart,
        [&](int64_t c) BRIGADE_NN_BODY { return static_cast<double>(in[c]); });
    if (row.first()) parts[r] = sum;
  }
};

// mean = sum of parts / rows; one row.
struct MeanLoss {
  const double* parts;
  float* mean;
  int64_t rows;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t) const {
    const double sum = row.template Sum<double>(
        LossParts(rows), [&](int64_t c) BRIGADE_NN_BODY { return parts[c]; });
    if (row.first()) *mean = static_cast<float>(sum / static_cast<double>(rows));
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_CROSS_ENTROPY_MATH_H_
