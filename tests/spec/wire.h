#ifndef BRIGADE_TESTS_SPEC_WIRE_H_
#define BRIGADE_TESTS_SPEC_WIRE_H_

// The executable specification, 5 of 6: the sum over ranks of arrays that cross the wire in another
// format.
//
// Each rank multiplies its array by a scale and rounds it to the wire's format; the sum runs in
// ascending order of ranks in float, rounds once to the wire's format, and is multiplied by the
// inverse of the scale. The scale is 1, but for float16 that carries values of a larger range:
// there it is the largest power of two for which no sum exceeds 2^15, half of the range of float16,
// found from the largest absolute value on any rank.
//
// In a hierarchy each node adds up its ranks first, and then the nodes' sums are added in ascending
// order of nodes.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "brigade/tests/spec/formats.h"

namespace brigade::spec {

// Of so many terms that are at most `largest`, whose sums may come to `limit`. 1 where there is
// nothing to scale, or something is not finite.
inline float LargestScale(float largest, size_t terms, double limit) {
  if (largest == 0 || !std::isfinite(largest)) return 1.0f;
  const int above = std::max(std::ilogb(largest) + 1, -126);  // largest < 2^above
  const double doublings = std::ceil(std::log2(static_cast<double>(terms)));
  return static_cast<float>(std::clamp(limit / std::exp2(above + doublings), 0x1p-126, 0x1p126));
}

inline bool IsScaled(Format format, Format wire) {
  return wire == Format::kFloat16 && format != Format::kFloat16;
}

inline float ScaleForWire(const std::vector<std::vector<float>>& of_rank, Format format,
                          Format wire) {
  if (!IsScaled(format, wire)) return 1.0f;
  float largest = 0;
  for (const auto& values : of_rank) {
    for (const float x : values) {
      if (std::isnan(x)) return 1.0f;
      largest = std::max(largest, std::fabs(x));
    }
  }
  return LargestScale(largest, of_rank.size(), 0x1p15);
}

struct SumOrder {
  size_t ranks_per_node = 1;
  // Whether a node's sum rounds to the wire's format before it leaves the node.
  bool rounds_nodes = false;
};

// The elements begin to end - 1 of the sum.
inline std::vector<float> SumOverWire(const std::vector<std::vector<float>>& of_rank, Format wire,
                                      float scale, size_t begin, size_t end,
                                      const SumOrder& order = {}) {
  std::vector<float> sums;
  for (size_t i = begin; i < end; ++i) {
    float sum = 0;
    for (size_t first = 0; first < of_rank.size(); first += order.ranks_per_node) {
      float of_node = Round(wire, of_rank[first][i] * scale);
      for (size_t r = first + 1; r < first + order.ranks_per_node; ++r) {
        of_node = of_node + Round(wire, of_rank[r][i] * scale);
      }
      if (order.rounds_nodes) of_node = Round(wire, of_node);
      sum = first == 0 ? of_node : sum + of_node;
    }
    sums.push_back(Round(wire, sum) * (1.0f / scale));
  }
  return sums;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_WIRE_H_
