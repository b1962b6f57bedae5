#ifndef BRIGADE_TESTS_COLLECTIVES_COMPRESSED_WIRE_H_
#define BRIGADE_TESTS_COLLECTIVES_COMPRESSED_WIRE_H_

// What tests of compressed all-reduces share: inputs, what must come of them, and one rank's call.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/spec/formats.h"
#include "brigade/tests/spec/wire.h"
#include "gtest/gtest.h"

namespace brigade::collectives {

using precision::DType;
using Inputs = std::vector<std::vector<float>>;  // [rank][i]

inline constexpr DType kWires[] = {DType::kFloat16, DType::kBFloat16};
inline constexpr WireScaling kScalings[] = {WireScaling::kNone, WireScaling::kStatic,
                                            WireScaling::kDynamic};

inline std::string ToString(const WireOptions& options) {
  return absl::StrCat(precision::Name(options.wire), ", scaling ",
                      static_cast<int>(options.scaling), ", ", Name(options.algorithm));
}

// Normal variables of several magnitudes up to `magnitude`, and zeros.
inline Inputs MakeInputs(int ranks, int64_t count, float magnitude) {
  Inputs inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937 random(static_cast<uint32_t>(1000 * rank + count));
    std::normal_distribution<float> normal;
    std::vector<float>& x = inputs.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      const int exponent = -static_cast<int>(random() % 12);
      x.push_back(i % 10 == 9 ? 0.0f : std::ldexp(magnitude / 8 * normal(random), exponent));
    }
  }
  return inputs;
}

// The scale by its definition. Values are normal floats of no extreme size, or zeros.
inline double ScaleOf(const WireOptions& options, const Inputs& inputs) {
  if (options.scaling == WireScaling::kNone) return 1.0;
  if (options.scaling == WireScaling::kStatic) return options.scale;
  double largest = 0;
  for (const auto& input : inputs) {
    for (const float x : input) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  }
  if (largest == 0 || !std::isfinite(largest)) return 1.0;
  const double limit = options.wire == DType::kFloat16 ? 0x1p15 : 0x1p127;
  return spec::LargestScale(static_cast<float>(largest), inputs.size(), limit);
}

// Element i by the specification of kDirect.
inline float DirectSum(const WireOptions& options, const Inputs& inputs, double scale, size_t i) {
  const auto format =
      options.wire == DType::kFloat16 ? spec::Format::kFloat16 : spec::Format::kBFloat16;
  return spec::SumOverWire(inputs, format, static_cast<float>(scale), i, i + 1)[0];
}

// The header's bound.
inline ::testing::AssertionResult IsWithinBound(float actual, const WireOptions& options,
                                                const Inputs& inputs, double scale, size_t i) {
  const auto p = static_cast<double>(inputs.size());
  const bool half = options.wire == DType::kFloat16;
  const double u = half ? 0x1p-11 : 0x1p-8;
  const double t = half ? 0x1p-25 : 0x1p-134;
  const double n = options.reduction == Reduction::kRoundedPerHop ? p : 2;
  double sum = 0, magnitudes = 0;
  for (const auto& input : inputs) {
    sum += input[i];
    magnitudes += std::fabs(static_cast<double>(input[i]));
  }
  const double bound = 1.1 * (n * u + p * 0x1p-22) * magnitudes + 1.1 * p * t / scale + 0x1p-149;
  if (std::fabs(actual - sum) <= bound) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "element " << i << " is " << actual << ", the sum " << sum << ", the bound " << bound
         << ": " << ToString(options) << ", " << p << " ranks";
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

struct Result {
  std::vector<float> output;
  int32_t non_finite = -1;
};

// One rank's call, in place or not, with its result on the host.
inline Result AllReduceOnWire(CompressedReduction& compressed, const std::vector<float>& input,
                              const WireOptions& options, bool in_place, device::Stream& stream) {
  Result result = {input};
  std::vector<float> separate = input;
  const auto count = static_cast<int64_t>(input.size());
  float* const output = result.output.data();
  EXPECT_OK(
      compressed.AllReduce(in_place ? output : separate.data(), output, count, options, stream));
  EXPECT_OK(stream.Copy(&result.non_finite, compressed.non_finite(), sizeof(int32_t)));
  EXPECT_OK(stream.Synchronize());
  EXPECT_TRUE(SameBits(separate, input));
  return result;
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_COMPRESSED_WIRE_H_
