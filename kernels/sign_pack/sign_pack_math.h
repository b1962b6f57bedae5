#ifndef BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_MATH_H_
#define BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_MATH_H_

// Messages of signs with one scale, for CUDA, SIMD and scalar code alike.
//
// A message of n elements:
//
//   from byte  what
//   0          float scale; zeros
//   64         a bit for each element, 1 where it is negative: bit i % 8 of byte i / 8; zeros
//   SignBytes  end, a multiple of 64
//
// A message begins at a multiple of 64 bytes in memory, so that messages of equal length lie one
// after the other in a buffer. Numbers are as they are in memory, little-endian.
//
// Value  scale, or -scale for a negative element. 0 and -0 have the sign +.

#include <cstdint>

#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// Of a message and of its parts, in bytes.
inline constexpr int64_t kSignAlignment = 64;
// What the workspace of SignPack has behind the sums of tiles, for GradStats.
inline constexpr int64_t kSignStatsDoubles = 2;
// Where the bits begin.
inline constexpr int64_t kSignBitsBegin = kSignAlignment;
// The elements whose bits fill a line of 64 bytes.
inline constexpr int64_t kSignLine = 8 * kSignAlignment;

// The bytes of a message of `size` elements: 1/8 for each, and a rest; 0 for none.
BRIGADE_HOST_DEVICE constexpr int64_t SignBytes(int64_t size) {
  return size == 0 ? 0 : kSignBitsBegin + (size + kSignLine - 1) / kSignLine * kSignAlignment;
}

// One array to become a message. Device memory.
struct SignPackSegment {
  // [size] of SignPackOptions::dtype.
  const void* array;
  // [size]: what earlier messages left out, which enters this one; replaced by what this one leaves
  // out.
  float* error;
  // [SignBytes(size)], at a multiple of 64.
  void* message;
  int64_t size;
};

// The messages of all ranks for the same elements, and where their sum goes. Device memory.
struct SignUnpackSegment {
  // The message of rank 0; those of ranks 1, 2, ... follow at a distance of
  // SignUnpackParameters::stride bytes each.
  const void* messages;
  // [size] of SignUnpackOptions::dtype.
  void* array;
  int64_t size;
};

// What is the same for all segments.
struct SignUnpackParameters {
  // At least 1.
  int64_t ranks = 1;
  // Bytes, a multiple of 64: what the AllToAll that brought the messages received of each rank. Not
  // looked at for one rank.
  int64_t stride = 0;
  // Of the sum: 1 / ranks makes it a mean.
  float factor = 1.0f;
};

// norm2 / sqrt(count) of a list, from the sum of its squares: NaN if not all of it was finite.
BRIGADE_INLINE float SignScale(const GradStats& stats, int64_t count) {
  if (stats.all_finite == 0) return __builtin_bit_cast(float, 0x7fc00000);
  const double mean = precision::Div(stats.sum_of_squares, static_cast<double>(count));
  return static_cast<float>(precision::Sqrt(mean));
}

BRIGADE_INLINE bool IsNumber(float scale) { return scale == scale; }

// An element with what earlier messages left out of it.
template <typename T>
BRIGADE_INLINE float WithError(T element, float error) {
  return precision::Add(static_cast<float>(element), error);
}

BRIGADE_INLINE bool IsNegative(float x) { return x < 0.0f; }

BRIGADE_INLINE float SignValue(float scale, bool negative) { return negative ? -scale : scale; }

// What the message leaves out of x.
BRIGADE_INLINE float LeftOut(float x, float scale) {
  return precision::Sub(x, SignValue(scale, IsNegative(x)));
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_MATH_H_
