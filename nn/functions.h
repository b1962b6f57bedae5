#ifndef BRIGADE_NN_FUNCTIONS_H_
#define BRIGADE_NN_FUNCTIONS_H_

// Scalar functions of the layers, for SIMD loops and for the GPU. T is how numbers are stored:
// float, Half, BFloat16, or double, in which tests compare with finite differences. Sums and
// formulas are in Wide<T>.

#include <cmath>
#include <cstdint>

#include "brigade/precision/dtype.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::nn {

template <typename T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
template <typename T>
using Wide = typename WideOf<T>::Type;

template <typename T>
BRIGADE_INLINE Wide<T> Widen(T value) {
  return static_cast<Wide<T>>(value);
}

// Writes a part of a gradient.
template <typename T>
BRIGADE_INLINE void StoreGradient(T* gradient, bool accumulate, Wide<T> value) {
  *gradient = T(accumulate ? Widen(*gradient) + value : value);
}

// precision::VisitFloat, with double.
template <typename Visitor>
bool VisitReal(precision::DType dtype, Visitor&& visit) {
  if (dtype != precision::DType::kFloat64) return precision::VisitFloat(dtype, visit);
  visit(double());
  return true;
}

// e^x to about one unit in the last place; arguments are clamped to where the result is normal and
// finite, NaN stays.
BRIGADE_INLINE float Exp(float argument) {
  float x = argument;
  x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
  // x = n ln 2 + r. Adding 1.5 * 2^23 rounds to an integer, whose bits are then at the low end.
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  // Taylor; the next term is below 2^-25 for |r| <= ln 2 / 2.
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) << 23;
  const float power = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, sum) + exponent);
  return argument == argument ? power : argument;
}
BRIGADE_INLINE double Exp(double x) { return ::exp(x); }

// x (1 + tanh(u)) / 2 = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3), and its
// derivative. Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415), the approximation that GPT-2
// uses.
template <typename W>
struct GeluAt {
  BRIGADE_INLINE explicit GeluAt(W x)
      : x(x), cdf(W(1) / (W(1) + Exp(-kTwice * (x + kCubic * x * x * x)))) {}

  BRIGADE_INLINE W value() const { return x * cdf; }
  BRIGADE_INLINE W slope() const {
    return cdf + x * cdf * (W(1) - cdf) * kTwice * (W(1) + W(3) * kCubic * x * x);
  }

  // 2 sqrt(2 / pi).
  static constexpr W kTwice = W(1.5957691216057308);
  static constexpr W kCubic = W(0.044715);
  W x;
  W cdf;
};

// x / (1 + e^-x), and its derivative. Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415).
template <typename W>
struct Silu {
  BRIGADE_INLINE explicit Silu(W x) : x(x), sigmoid(W(1) / (W(1) + Exp(-x))) {}

  BRIGADE_INLINE W value() const { return x * sigmoid; }
  BRIGADE_INLINE W slope() const { return sigmoid + x * sigmoid * (W(1) - sigmoid); }

  W x;
  W sigmoid;
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_FUNCTIONS_H_
