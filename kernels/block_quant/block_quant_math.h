#ifndef BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_MATH_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_MATH_H_

// The message of an array in blocks of integers, and the codes of one block, for CUDA, SIMD and
// scalar code alike.
//
// A message of n elements, in blocks of 256 of which the last one is filled up with zeros:
//
//   from byte          what
//   0                  float maximum[blocks], the largest magnitude of each block
//   QuantCodesBegin(n) the codes of each block in order: 256 bytes for int8, 128 for int4
//   QuantBytes(n, f)   end, a multiple of 64
//
// Both parts begin at multiples of 64 bytes from the message's begin, as the message itself does in
// memory; between the maxima and the codes are zeros. Messages of equal length so lie one after the
// other in a buffer. Numbers are as they are in memory, little-endian.
//
// Codes        Two's complement, from -127 to 127 or -7 to 7. int4: byte i of a block has the code
//              of element i in its low half and that of element i + 128 in its high half.
// Value        maximum * (code / largest code), the quotient rounded to float, then the product:
//              the largest magnitude comes back exactly.
// Non-finite   The maximum of a block that holds NaN or an infinity is NaN (0x7fc00000), its codes
//              are 0: every element of it comes back as NaN.

#include <cstdint>
#include <type_traits>

#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

enum class QuantFormat : uint8_t { kInt8, kInt4 };

constexpr const char* Name(QuantFormat format) {
  return format == QuantFormat::kInt8 ? "int8" : "int4";
}

// The elements that share a maximum.
inline constexpr int64_t kQuantBlock = 256;
// Of a message and of its parts, in bytes.
inline constexpr int64_t kQuantAlignment = 64;

// Blocks of `size` elements. By shifts: a division of signed numbers is of more instructions.
BRIGADE_HOST_DEVICE constexpr int64_t QuantBlocks(int64_t size) {
  static_assert(kQuantBlock == 1 << 8);
  return (size + kQuantBlock - 1) >> 8;
}

// Bytes of the codes of a block.
BRIGADE_HOST_DEVICE constexpr int64_t QuantBlockBytes(QuantFormat format) {
  return format == QuantFormat::kInt8 ? kQuantBlock : kQuantBlock / 2;
}

// The maxima that the message has room for; those behind the last block are 0.
BRIGADE_HOST_DEVICE constexpr int64_t QuantMaxima(int64_t size) {
  constexpr int64_t kOfLine = kQuantAlignment / static_cast<int64_t>(sizeof(float));
  return (QuantBlocks(size) + kOfLine - 1) & -kOfLine;
}

// Where the codes of a message of `size` elements begin.
BRIGADE_HOST_DEVICE constexpr int64_t QuantCodesBegin(int64_t size) {
  return QuantMaxima(size) * static_cast<int64_t>(sizeof(float));
}

// The bytes of a message of `size` elements: 1 + 1/64 or 1/2 + 1/64 for each, and a rest; 0 for
// none.
BRIGADE_HOST_DEVICE constexpr int64_t QuantBytes(int64_t size, QuantFormat format) {
  return QuantCodesBegin(size) + QuantBlocks(size) * QuantBlockBytes(format);
}

// Calls run(std::integral_constant) for the format.
template <typename Run>
auto VisitQuantFormat(QuantFormat format, const Run& run) {
  return format == QuantFormat::kInt8
             ? run(std::integral_constant<QuantFormat, QuantFormat::kInt8>())
             : run(std::integral_constant<QuantFormat, QuantFormat::kInt4>());
}

// One array to become a message. Device memory.
struct QuantizeSegment {
  // [size] of BlockQuantOptions::dtype.
  const void* array;
  // [QuantBytes(size, format)], at a multiple of 64.
  void* message;
  int64_t size;
};

// One message to become an array. Device memory.
struct DequantizeSegment {
  const void* message;
  void* array;
  int64_t size;
};

template <QuantFormat kFormat>
inline constexpr float kLargestCode = kFormat == QuantFormat::kInt8 ? 127.0f : 7.0f;

// A magnitude as bits: their order as integers is that of the values, with infinity above all
// numbers and NaN above infinity.
BRIGADE_INLINE int32_t QuantMagnitude(float x) {
  return __builtin_bit_cast(int32_t, x) & 0x7fffffff;
}

BRIGADE_INLINE bool IsNonFinite(int32_t magnitude) { return magnitude >= 0x7f800000; }

// How a block is coded, from its largest magnitude.
struct BlockCoder {
  // What the message holds.
  float maximum;
  // A power of two that keeps `inverse` finite, 1 but for tiny maxima.
  float up;
  // Codes for one; 0 of a block without numbers other than 0.
  float inverse;
};

template <QuantFormat kFormat>
BRIGADE_INLINE BlockCoder MakeBlockCoder(int32_t magnitude) {
  if (IsNonFinite(magnitude)) return {__builtin_bit_cast(float, 0x7fc00000), 1.0f, 0.0f};
  const float maximum = __builtin_bit_cast(float, magnitude);
  const float up = maximum < 0x1p-100f ? 0x1p100f : 1.0f;
  const float units = precision::Div(kLargestCode<kFormat>, precision::Mul(maximum, up));
  return {maximum, up, magnitude == 0 ? 0.0f : units};
}

// A multiple of what a code stands for, rounded to nearest even: the code in the low bits, two's
// complement, which is what the sum with 1.5 * 2^23, whose unit is 1, has in its fraction.
BRIGADE_INLINE uint32_t RoundedCode(float units) {
  return __builtin_bit_cast(uint32_t, precision::Add(units, 0x1.8p23f));
}

// The code of x in the low bits. Of a finite block.
BRIGADE_INLINE uint32_t CodeOf(const BlockCoder& coder, float x) {
  return RoundedCode(precision::Mul(precision::Mul(x, coder.up), coder.inverse));
}

// A code in the low bits as a number.
BRIGADE_INLINE float NumberOf(uint32_t code) {
  return precision::Sub(__builtin_bit_cast(float, code), 0x1.8p23f);
}

template <QuantFormat kFormat>
BRIGADE_INLINE float ValueOf(float maximum, float code) {
  constexpr float kUnit = 1.0f / kLargestCode<kFormat>;
  return precision::Mul(maximum, precision::Mul(code, kUnit));
}
template <QuantFormat kFormat>
BRIGADE_INLINE float ValueOf(float maximum, int32_t code) {
  return ValueOf<kFormat>(maximum, static_cast<float>(code));
}

BRIGADE_INLINE uint8_t JoinCodes(uint32_t low, uint32_t high) {
  return static_cast<uint8_t>((low & 15u) | high << 4);
}
BRIGADE_INLINE int32_t LowCode(uint8_t byte) { return static_cast<int32_t>((byte & 15) ^ 8) - 8; }
BRIGADE_INLINE int32_t HighCode(uint8_t byte) { return static_cast<int8_t>(byte) >> 4; }

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_MATH_H_
