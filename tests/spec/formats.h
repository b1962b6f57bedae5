#ifndef BRIGADE_TESTS_SPEC_FORMATS_H_
#define BRIGADE_TESTS_SPEC_FORMATS_H_

// The executable specification, 1 of 6: number formats.
//
// A value of any format is held as a float here; rounding to a format is the only operation on it.

#include <algorithm>
#include <cmath>
#include <limits>

namespace brigade::spec {

enum class Format { kFloat32, kFloat16, kBFloat16 };

struct FormatLimits {
  int fraction_bits;
  int min_exponent;  // of the smallest normal number
  float max_finite;
};

inline FormatLimits LimitsOf(Format format) {
  switch (format) {
    case Format::kFloat16:
      return {10, -14, 65504.0f};
    case Format::kBFloat16:
      return {7, -126, 0x1.fep127f};
    case Format::kFloat32:
      break;
  }
  return {23, -126, std::numeric_limits<float>::max()};
}

// The value of `format` nearest to x, ties to even; infinity past the largest finite value by half
// a unit or more.
inline float Round(Format format, float x) {
  if (format == Format::kFloat32 || std::isnan(x) || std::isinf(x) || x == 0.0f) return x;
  const FormatLimits limits = LimitsOf(format);
  const int exponent = std::max(std::ilogb(x), limits.min_exponent);
  const int unit = exponent - limits.fraction_bits;
  const double units = std::nearbyint(std::ldexp(static_cast<double>(x), -unit));
  const double rounded = std::ldexp(units, unit);
  if (std::fabs(rounded) > limits.max_finite) {
    return std::copysign(std::numeric_limits<float>::infinity(), x);
  }
  return static_cast<float>(std::copysign(rounded, x));
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_FORMATS_H_
