#ifndef BRIGADE_PARALLEL_TENSOR_CROSS_ENTROPY_MATH_H_
#define BRIGADE_PARALLEL_TENSOR_CROSS_ENTROPY_MATH_H_

// The formulas of the cross entropy over a vocabulary that is cut over tensor shards.

#include <cmath>
#include <cstdint>
#include <limits>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"
#include "brigade/nn/token_ids.h"

namespace brigade::parallel {

// What is known of a row of logits z from a part of its vocabulary: the largest one, the sum of
// e^(z - max), which is 0 where all are -inf, and the target's, or -inf where that is elsewhere.
template <typename W>
struct SoftmaxPart {
  W max, sum, target;
};

template <typename W>
BRIGADE_INLINE SoftmaxPart<W> Join(const SoftmaxPart<W>& a, const SoftmaxPart<W>& b) {
  constexpr W kNone = -std::numeric_limits<W>::infinity();
  const W max = a.max > b.max ? a.max : b.max;
  // A part of -inf alone adds nothing to another one; their difference would be NaN.
  const W first = a.max == kNone ? a.sum : a.sum * nn::Exp(a.max - max);
  const W second = b.max == kNone ? b.sum : b.sum * nn::Exp(b.max - max);
  return {max, first + second, a.target > b.target ? a.target : b.target};
}

// All of `count` parts, part(i) in ascending order, joined as an aligned binary tree; of a number
// that is no power of two the rest last.
template <typename W, typename Part>
BRIGADE_INLINE SoftmaxPart<W> JoinAll(int count, const Part& part) {
  // More than the bits of a number of shards.
  SoftmaxPart<W> subtrees[20];
  int level = 0;
  for (int i = 0; i < count; ++i) {
    SoftmaxPart<W> joined = part(i);
    for (int bit = 1; (i & bit) != 0; bit *= 2) joined = Join(subtrees[--level], joined);
    subtrees[level++] = joined;
  }
  SoftmaxPart<W> all = subtrees[--level];
  while (level > 0) all = Join(subtrees[--level], all);
  return all;
}

// parts[r], of this rank's shards.
template <typename T>
struct VocabularyParts {
  // The rank's window.
  nn::TokenIds ids;
  // [shards, rows, columns].
  const T* logits;
  SoftmaxPart<nn::Wide<T>>* parts;
  int shards;
  // Of the vocabulary, of each shard.
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = nn::Wide<T>;
    const int64_t target = ids.target(r);
    const SoftmaxPart<W> all = JoinAll<W>(shards, [&](int s) BRIGADE_NN_BODY -> SoftmaxPart<W> {
      const T* const in = logits + (s * ids.rows() + r) * columns;
      const W max =
          row.template Max<W>(columns, [&](int64_t c) BRIGADE_NN_BODY { return nn::Widen(in[c]); });
      constexpr W kNone = -std::numeric_limits<W>::infinity();
      const W sum = row.template Sum<W>(columns, [&](int64_t c) BRIGADE_NN_BODY {
        const W z = nn::Widen(in[c]);
        return max == kNone && z == kNone ? W(0) : nn::Exp(z - max);
      });
      const int64_t at = target - s * columns;
      return {max, sum, at >= 0 && at < columns ? nn::Widen(in[at]) : kNone};
    });
    if (row.first()) parts[r] = all;
  }
};

// whole[r] from the parts of all ranks, and losses[r] = log(sum) - (target - max); NaN without a
// target, 0 where it is ignored.
template <typename W>
struct VocabularyLosses {
  nn::TokenIds ids;
  // [ranks, rows].
  const SoftmaxPart<W>* parts;
  SoftmaxPart<W>* whole;
  W* losses;
  int ranks;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    if (!row.first()) return;
    const SoftmaxPart<W> all =
        JoinAll<W>(ranks, [&](int rank) BRIGADE_NN_BODY { return parts[rank * ids.rows() + r]; });
    whole[r] = all;
    const int64_t target = ids.target(r);
    losses[r] = target == nn::TokenIds::kIgnored ? W(0)
                : target == nn::TokenIds::kNone  ? std::numeric_limits<W>::quiet_NaN()
                                                 : std::log(all.sum) - (all.target - all.max);
  }
};

// In place: the gradient of `seed / divisor * sum of losses`, (softmax - one at the target) * seed
// / divisor; NaN without a target, 0 where it is ignored.
template <typename T>
struct VocabularyCrossEntropyGradient {
  nn::TokenIds ids;
  T* logits;
  const SoftmaxPart<nn::Wide<T>>* whole;
  // The loss scale.
  const float* seed;
  int shards;
  int64_t columns;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = nn::Wide<T>;
    const int64_t target = ids.target(r);
    if (target == nn::TokenIds::kIgnored) {
      for (int s = 0; s < shards; ++s) {
        T* const in = logits + (s * ids.rows() + r) * columns;
        row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY { in[c] = T(W(0)); });
      }
      return;
    }
    const W scale = target == nn::TokenIds::kNone ? std::numeric_limits<W>::quiet_NaN()
                                                  : W(*seed) / W(ids.divisor());
    const W max = whole[r].max, inverse = W(1) / whole[r].sum;
    for (int s = 0; s < shards; ++s) {
      T* const in = logits + (s * ids.rows() + r) * columns;
      const int64_t at = target - s * columns;
      row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
        const W probability = nn::Exp(nn::Widen(in[c]) - max) * inverse;
        in[c] = T((probability - (c == at ? W(1) : W(0))) * scale);
      });
    }
  }
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_TENSOR_CROSS_ENTROPY_MATH_H_
