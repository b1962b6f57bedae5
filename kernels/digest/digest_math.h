#ifndef BRIGADE_KERNELS_DIGEST_DIGEST_MATH_H_
#define BRIGADE_KERNELS_DIGEST_DIGEST_MATH_H_

// The checksum of a tensor, for CUDA, SIMD and scalar code alike. tests/spec/digest.h says the same
// in words and plain loops.
//
// A tensor's bytes are taken as little-endian words of 32 bits; word i counts b^i times, modulo
// 2^64, for two bases b. So the parts of any partition have sums that are added up, and what a
// difference d of one word changes, d * b^i, is never 0: b is odd.

#include <cstdint>

#include "brigade/precision/host_device.h"

namespace brigade::kernels {

// Device memory.
struct TensorDigest {
  uint64_t words[2];
};

// Bytes of a tensor that are side by side in memory. Device memory.
struct DigestSegment {
  const void* data;
  // Bytes in memory; any number.
  int64_t size;
  // The place of the first one in the tensor, in bytes.
  int64_t first;
  // So many bytes are side by side in the tensor too, and the next ones begin `stride` bytes after
  // those: the columns of a matrix that a rank holds. 0: all of them.
  int64_t run;
  int64_t stride;
  // Which of the call's digests they are a part of.
  int64_t digest;
};

// 5 modulo 8, by which their powers return to 1 after 2^62 words, and no sum of 2^32 words that all
// differ alike is 0. The digits of pi and of e.
inline constexpr uint64_t kDigestBase[2] = {0x243f6a8885a308d5u, 0xb7e151628aed2a6du};

BRIGADE_HOST_DEVICE constexpr uint64_t DigestBase(int word) {
  return word == 0 ? 0x243f6a8885a308d5u : 0xb7e151628aed2a6du;
}
static_assert(DigestBase(0) == kDigestBase[0] && DigestBase(1) == kDigestBase[1]);

// base^exponent. Exponents are numbers modulo 2^64, negative ones too: the powers have a period
// that divides 2^64.
BRIGADE_HOST_DEVICE constexpr uint64_t DigestPower(uint64_t base, uint64_t exponent) {
  uint64_t power = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power *= base;
    base *= base;
  }
  return power;
}

// Bytes that are side by side in memory and in the tensor.
struct DigestRun {
  const unsigned char* data;
  int64_t size;
  // In the tensor.
  int64_t first;
};

// Calls visit(run) for the bytes [begin, end) of a segment's memory.
template <typename Visit>
BRIGADE_INLINE void ForEachDigestRun(const DigestSegment& s, int64_t begin, int64_t end,
                                     const Visit& visit) {
  const int64_t length = s.run == 0 ? s.size : s.run;
  for (int64_t at = begin; at < end;) {
    const int64_t row = s.run == 0 ? 0 : at / length;
    const int64_t in_row = at - row * length;
    const int64_t size = length - in_row < end - at ? length - in_row : end - at;
    visit(DigestRun{static_cast<const unsigned char*>(s.data) + at, size,
                    s.first + row * s.stride + in_row});
    at += size;
  }
}

// Up to four bytes, as the part of a word from its byte `place` on.
BRIGADE_INLINE uint32_t DigestBytes(const unsigned char* data, int count, int place) {
  uint32_t word = 0;
  for (int i = 0; i < count; ++i) word |= static_cast<uint32_t>(data[i]) << (8 * (place + i));
  return word;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DIGEST_DIGEST_MATH_H_
