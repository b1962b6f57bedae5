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

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_PARALLEL_H_
