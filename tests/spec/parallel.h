#ifndef BRIGADE_TESTS_SPEC_PARALLEL_H_
#define BRIGADE_TESTS_SPEC_PARALLEL_H_

// What model parallelism computes, serially: in which order sums over shards are added, and the
// formulas of layers that see a part of a row each.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace brigade::spec {

// The sum of as many numbers as a power of two: neighbours, then pairs of them, and so on.
template <typename W>
W TreeSum(std::vector<W> parts) {
  while (parts.size() > 1) {
    std::vector<W> pairs;
    for (size_t i = 0; i < parts.size(); i += 2) pairs.push_back(parts[i] + parts[i + 1]);
    parts = pairs;
  }
  return parts.at(0);
}

// What is known of a row of logits from a part of its vocabulary.
struct SoftmaxPart {
  // The largest logit z, the sum of e^(z - max), and the target's logit, -inf if it is elsewhere.
  double max, sum, target;
};

// logits [vocabulary of the part]; `target` counts from the part's first, and may be elsewhere.
inline SoftmaxPart PartOf(const std::vector<double>& logits, int64_t target) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  SoftmaxPart part = {kNone, 0, kNone};
  for (const double z : logits) part.max = z > part.max ? z : part.max;
  for (const double z : logits) part.sum += z == kNone ? 0 : std::exp(z - part.max);
  if (target >= 0 && target < static_cast<int64_t>(logits.size())) {
    part.target = logits[static_cast<size_t>(target)];
  }
  return part;
}

inline SoftmaxPart Join(const SoftmaxPart& a, const SoftmaxPart& b) {
  const double max = a.max > b.max ? a.max : b.max;
  const auto decayed = [&](const SoftmaxPart& part) {
    return part.sum == 0 ? 0 : part.sum * std::exp(part.max - max);
  };
  return {max, decayed(a) + decayed(b), a.target > b.target ? a.target : b.target};
}

inline double LossOf(const SoftmaxPart& whole) {
  return std::log(whole.sum) - (whole.target - whole.max);
}

// What a query has made of some keys: the logarithm of the sum of e^score, and the mean of their
// values by these weights.
struct AttentionPart {
  double log_sum_exp = -std::numeric_limits<double>::infinity();
  double out = 0;
};

inline AttentionPart Merge(const AttentionPart& a, const AttentionPart& b) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  if (b.log_sum_exp == kNone) return a;
  if (a.log_sum_exp == kNone) return b;
  const AttentionPart& larger = a.log_sum_exp > b.log_sum_exp ? a : b;
  const AttentionPart& smaller = a.log_sum_exp > b.log_sum_exp ? b : a;
  const double both =
      larger.log_sum_exp + std::log1p(std::exp(smaller.log_sum_exp - larger.log_sum_exp));
  return {both,
          a.out * std::exp(a.log_sum_exp - both) + b.out * std::exp(b.log_sum_exp - both)};
}

// Ring attention over 2c chunks of a text: which of them rank r has, and whose keys it meets, in
// this order. Of those its queries see the chunks up to their own, of that the keys up to their own
// place.
inline std::vector<int> ZigzagChunks(int ranks, int rank) { return {rank, 2 * ranks - 1 - rank}; }
inline std::vector<int> RingOrder(int ranks, int rank) {
  std::vector<int> order;
  for (int step = 0; step < ranks; ++step) order.push_back((rank + ranks - step) % ranks);
  return order;
}

// One query of a chunk, which merges what it makes of one rank's keys at a time; scores and values
// [positions].
inline AttentionPart RingAttentionOf(const std::vector<double>& scores,
                                     const std::vector<double>& values, size_t query, int ranks) {
  const size_t chunk_size = scores.size() / static_cast<size_t>(2 * ranks);
  const int chunk = static_cast<int>(query / chunk_size);
  const int rank = chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
  AttentionPart all;
  for (const int from : RingOrder(ranks, rank)) {
    AttentionPart part;
    for (const int keys : ZigzagChunks(ranks, from)) {
      for (size_t i = 0; i < chunk_size; ++i) {
        const size_t key = static_cast<size_t>(keys) * chunk_size + i;
        if (key <= query) part = Merge(part, {scores[key], values[key]});
      }
    }
    all = Merge(all, part);
  }
  return all;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_PARALLEL_H_
