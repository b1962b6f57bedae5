#ifndef BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_MATH_H_
#define BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_MATH_H_

// The error of a message of codes as it enters the next one, for CUDA, SIMD and scalar code alike.

#include <cstdint>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// The format in which errors are kept.
inline constexpr QuantFormat kLocoErrors = QuantFormat::kInt8;

// One array to become a message. Device memory.
struct LocoSegment {
  // [size] of LocoQuantOptions::dtype.
  const void* array;
  // [QuantBytes(size, int8)], at a multiple of 64: a message (block_quant_math.h) of the errors of
  // earlier calls, replaced by that of the next ones. Zeros are a message of no errors.
  void* error;
  // [QuantBytes(size, format)], at a multiple of 64.
  void* message;
  int64_t size;
};

// What is the same for all segments.
struct LocoParameters {
  // Of the earlier errors in the next ones, 0 to 1.
  float beta = 0.8f;
  // The earlier errors count as 0.
  bool forget = false;
};

// What becomes codes.
template <typename T>
BRIGADE_INLINE float WithLocoError(T element, float error) {
  return precision::Add(static_cast<float>(element), error);
}

// The next error, beta * error + rest * (x - kept), of an element with its error, x, of which codes
// keep `kept`. The difference, both products and the sum round, each by itself; `rest` is 1 - beta.
BRIGADE_INLINE float NextLocoError(float beta, float rest, float error, float x, float kept) {
  return precision::Add(precision::Mul(beta, error), precision::Mul(rest, precision::Sub(x, kept)));
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_MATH_H_
