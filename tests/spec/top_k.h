#ifndef BRIGADE_TESTS_SPEC_TOP_K_H_
#define BRIGADE_TESTS_SPEC_TOP_K_H_

// The executable specification of the k elements of greatest magnitude: a NaN is more than an
// infinity, and of equal magnitudes, which NaN are and 0 and -0, the lower index comes first. They
// are in the order of indices.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace brigade::spec {

inline std::vector<int32_t> TopK(const std::vector<float>& values, size_t k) {
  std::vector<int32_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  const auto comes_before = [&](int32_t a, int32_t b) {
    const float x = std::fabs(values[static_cast<size_t>(a)]);
    const float y = std::fabs(values[static_cast<size_t>(b)]);
    if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
    return x > y || (!(y > x) && a < b);
  };
  std::sort(indices.begin(), indices.end(), comes_before);
  indices.resize(k);
  std::sort(indices.begin(), indices.end());
  return indices;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_TOP_K_H_
