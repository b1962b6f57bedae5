#ifndef BRIGADE_TESTS_NN_PLAIN_ATTENTION_H_
#define BRIGADE_TESTS_NN_PLAIN_ATTENTION_H_

// Attention and its gradient in double by the formula of Vaswani et al. 2017, and how far a
// computation in another type may be from it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "brigade/nn/attention.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// Unit roundoffs: of sums, of numbers in memory, and of probabilities and their gradients as
// factors of products. What is stored has a distance of at least twice `smallest`. `delta` is that
// of the output from which the softmax's constant is made; 0: it is made of the probabilities.
struct Roundoffs {
  double sums, stored, factors, smallest, delta;
};

template <typename T>
Roundoffs RoundoffsOf(const AttentionShape& shape, bool on_gpu) {
  // The exponential of functions.h ends at e^-87.
  constexpr double kSmallest = 0x1p-110;
  // By tensor cores, which cut off what they do not add up.
  const int64_t width = shape.head_width();
  const bool is_tiled = on_gpu && (width == 32 || width == 64 || width == 96 || width == 128);
  if (std::is_same_v<T, double>) return {0x1p-53, 0x1p-53, 0, 0, 0};
  if (std::is_same_v<T, precision::Half>) {
    if (is_tiled) return {0x1p-23, 0x1p-11, 0x1p-11, 0x1p-25, 0x1p-11};
    return {0x1p-24, 0x1p-11, 0, 0x1p-25, 0};
  }
  if (std::is_same_v<T, precision::BFloat16>) {
    if (is_tiled) return {0x1p-23, 0x1p-8, 0x1p-8, kSmallest, 0x1p-8};
    // As factors they stay float where the processor does not multiply bfloat16.
    return {0x1p-24, 0x1p-8, 0x1p-8, kSmallest, 0};
  }
  return {0x1p-24, 0x1p-24, 0, kSmallest, 0};
}

// The same for attention whose blocks of keys are merged so often, in fp32 or double. A merge adds
// some twelve roundings to a weight, and to its exponent two of a log-sum-exp, of which
// `log_sum_exp` is the largest; the gradient's constant is made of the rounded output.
inline Roundoffs Merged(Roundoffs u, int merges, double log_sum_exp) {
  // A bound has at least four roundings of sums in it.
  u.sums *= 1 + merges * (3 + log_sum_exp / 2);
  if (u.stored > 0x1p-20) u.delta = u.stored;
  return u;
}

class PlainAttention {
 public:
  using Numbers = std::vector<double>;

  PlainAttention(const AttentionShape& shape, const Numbers& qkv, const Numbers& dout);

  Numbers out, log_sum_exp, dqkv;

  // How far element (head, position, c) of `out` may be off; and of part 0, 1, 2 (queries, keys,
  // values) of dqkv. n roundings make an error of sqrt(n) roundoffs, as they are as good as
  // independent (Higham and Mary 2019); errors of terms add up in full.
  //
  // A score is the sum of D products, D roundings of what is added up by then at most, and scaled,
  // which makes four more. A probability has the error of its score, and some of the exponential;
  // it is normalised by a sum of such, over at most 64 keys a tile and then over tiles.
  double OutBound(const Roundoffs& u, int64_t head, int64_t position, int64_t c) const {
    const size_t at = Statistic(head, position);
    const double value = out[At(head, position, 0, 1) + static_cast<size_t>(c)];
    return largest_value_ *
               (2 * ScoreError(u, score_[at]) + (4 + 2 * Terms(position)) * u.sums + u.factors) +
           u.stored * std::abs(value) + u.smallest;
  }
  double LogSumExpBound(const Roundoffs& u, int64_t head, int64_t position) const {
    const size_t at = Statistic(head, position);
    return ScoreError(u, score_[at]) + (4 + Terms(position) + std::abs(log_sum_exp[at])) * u.sums;
  }
  double GradientBound(const Roundoffs& u, int64_t head, int64_t position, int part,
                       int64_t c) const {
    const size_t at = Statistic(head, position);
    const double value = dqkv[At(head, position, part, 3) + static_cast<size_t>(c)];
    const double error =
        part == 0   ? scale_ * largest_key_ * DscoreError(u, Of(at, position), 1, slopes_[at])
        : part == 1 ? scale_ * largest_query_ *
                          DscoreError(u, worst_, column_weight_[at], column_slopes_[at])
                    : largest_dout_ * column_weight_[at] * ProbabilityError(u, worst_);
    return error + u.stored * std::abs(value) + u.smallest;
  }

  size_t At(int64_t head, int64_t position, int64_t part, int64_t parts) const {
    return static_cast<size_t>(((head / shape_.heads * shape_.context + position) * parts + part) *
                                   shape_.width +
                               head % shape_.heads * shape_.head_width());
  }
  size_t Statistic(int64_t head, int64_t position) const {
    return static_cast<size_t>(head * shape_.context + position);
  }

 private:
  // What the errors of a query's probabilities and their gradients depend on.
  struct Query {
    double score, upstream, log_sum_exp, terms;
  };

  static double Terms(int64_t position) {
    return std::sqrt(static_cast<double>(std::min<int64_t>(position + 1, 64) + position / 64));
  }
  Query Of(size_t at, int64_t position) const {
    return {score_[at], upstream_[at], std::abs(log_sum_exp[at]), Terms(position)};
  }
  double ScoreError(const Roundoffs& u, double score) const {
    return (root_width_ + 2) * u.sums * score;
  }
  // Relative.
  double ProbabilityError(const Roundoffs& u, const Query& query) const {
    return 2 * ScoreError(u, query.score) + (4 + 2 * query.terms + query.log_sum_exp) * u.sums +
           u.factors;
  }
  // Of a sum of P (dP - delta), whose P add up to `weight` and whose amounts to `slopes`. Delta is
  // as exact as sums are, and as what they are made of.
  double DscoreError(const Roundoffs& u, const Query& query, double weight, double slopes) const {
    const double products = root_width_ * u.sums * query.upstream;
    // A sum of products of probabilities, whose errors are half in one direction at most.
    const double delta =
        (ProbabilityError({u.sums, 0, u.delta, 0, 0}, query) / 2 + u.delta / 2) * query.upstream;
    return weight * (products + delta) + slopes * ProbabilityError(u, query);
  }

  void Compute(int64_t head);

  const AttentionShape shape_;
  const Numbers& qkv_;
  const Numbers& dout_;
  double root_width_ = 0, scale_ = 0;
  double largest_query_ = 0, largest_key_ = 0, largest_value_ = 0, largest_dout_ = 0;
  // The worst of each, over all queries.
  Query worst_ = {};
  // For each position of each head: the largest amount on the way to a score; the amounts of
  // P (dP - delta) by query and by key; the sum of P by key; the largest amount on the way to dP
  // and delta.
  Numbers score_, slopes_, column_slopes_, column_weight_, upstream_;
};

}  // namespace brigade::nn

#endif  // BRIGADE_TESTS_NN_PLAIN_ATTENTION_H_
