#ifndef BRIGADE_TESTS_NN_TYPES_LAB_H_
#define BRIGADE_TESTS_NN_TYPES_LAB_H_

// A layer in a type that trains beside the same in double on the CPU: for typed tests in the
// namespace that includes it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "brigade/nn/functions.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/nn/lab.h"

namespace brigade::nn {

// Half a unit in the last place of 1.
template <typename T>
double Rounding() {
  if (std::is_same_v<T, precision::Half>) return 0x1p-11;
  if (std::is_same_v<T, precision::BFloat16>) return 0x1p-8;
  return 0x1p-24;
}

template <typename T>
class TypesTest : public ::testing::Test {
 protected:
  // The same values in T and in double.
  struct Both {
    absl::Span<T> narrow;
    absl::Span<double> wide;
  };
  Both Noise(int64_t size) {
    const Both both = {lab_.Noise<T>(size), reference_.Raw<double>(size)};
    for (size_t i = 0; i < both.wide.size(); ++i) both.wide[i] = Widen(both.narrow[i]);
    return both;
  }
  Both Raw(int64_t size) { return {lab_.Raw<T>(size), reference_.Raw<double>(size)}; }

  // Whether each element is as far from double's as `roundings` of the largest.
  void ExpectNear(const Both& both, double roundings) {
    double largest = 0, error = 0;
    for (size_t i = 0; i < both.wide.size(); ++i) {
      largest = std::max(largest, std::abs(both.wide[i]));
      error = std::max(error, std::abs(static_cast<double>(Widen(both.narrow[i])) - both.wide[i]));
    }
    EXPECT_GT(largest, 0);
    EXPECT_LE(error, roundings * Rounding<T>() * largest);
  }

  Lab lab_;
  Lab reference_{device::Cpu()};
};

using Types = ::testing::Types<float, precision::Half, precision::BFloat16>;
TYPED_TEST_SUITE(TypesTest, Types);

}  // namespace brigade::nn

#endif  // BRIGADE_TESTS_NN_TYPES_LAB_H_
