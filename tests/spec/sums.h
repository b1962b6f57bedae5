#ifndef BRIGADE_TESTS_SPEC_SUMS_H_
#define BRIGADE_TESTS_SPEC_SUMS_H_

// The executable specification, 3 of 6: the canonical sum of squares of a list of gradients.
//
// A segment is cut into tiles of 8192 elements, the last one shorter. Within a tile lane j of 256
// adds the squares of the elements j, j + 256, ... in that order, in double (a square of a float is
// exact there, so each addition rounds once). The lanes are added by halving: lane j gets lane
// j + 128, then j + 64, ... The sums of all tiles of the list, in order, are added in the same two
// steps.
//
// A tile that holds NaN, an infinity or a value whose square overflows float (2^64 and more) has
// the sum infinity; nothing else gives infinity, so the total also says whether all was finite.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace brigade::spec {

inline constexpr size_t kTileSize = 8192;
inline constexpr size_t kLanes = 256;

struct GradStats {
  double sum_of_squares = 0;
  bool all_finite = true;
};

// values[i] enters lane i mod 256 by lane = add(lane, values[i]).
template <typename T, typename Add>
double SumInLanes(const std::vector<T>& values, Add add) {
  std::vector<double> lanes(kLanes, 0.0);
  for (size_t i = 0; i < values.size(); ++i) lanes[i % kLanes] = add(lanes[i % kLanes], values[i]);
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

inline double TileSum(const std::vector<float>& tile) {
  for (const float x : tile) {
    if (!(std::fabs(x) < 0x1p64f)) return std::numeric_limits<double>::infinity();
  }
  return SumInLanes(tile, [](double lane, float x) {
    return lane + static_cast<double>(x) * static_cast<double>(x);
  });
}

inline GradStats SumOfSquares(const std::vector<std::vector<float>>& segments) {
  std::vector<double> tile_sums;
  for (const std::vector<float>& segment : segments) {
    for (size_t begin = 0; begin < segment.size(); begin += kTileSize) {
      const size_t end = std::min(begin + kTileSize, segment.size());
      tile_sums.push_back(TileSum({segment.begin() + begin, segment.begin() + end}));
    }
  }
  const double sum = SumInLanes(tile_sums, [](double lane, double x) { return lane + x; });
  return {sum, sum < std::numeric_limits<double>::infinity()};
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_SUMS_H_
