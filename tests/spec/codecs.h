#ifndef BRIGADE_TESTS_SPEC_CODECS_H_
#define BRIGADE_TESTS_SPEC_CODECS_H_

// The executable specification of messages of codes, which are smaller than what they stand for.
//
// Blocks: 256 elements share their largest magnitude, and each becomes an integer from -largest to
// largest (127 or 7), x / (maximum / largest) rounded to nearest even. The last block is filled up
// with zeros. A block with NaN or an infinity has the maximum NaN and codes of 0. A message is the
// maxima, zeros up to a multiple of 64 bytes, and the codes of all blocks: a byte each, or, for 4
// bits, byte i with the code of element i in its low half and that of element i + 128 in its high
// half.
//
// Signs: of c = array + error, element by element in float, one bit each, 1 where c < 0, and one
// scale for a list: norm2(c) / sqrt(count), the norm by the canonical sum of sums.h, quotient and
// root in double. What is left out, c - scale * sign(c) in float, is the next error. Where c is not
// finite the scale is NaN and the errors stay. A message is the scale, zeros up to 64 bytes, bits
// from the lowest of the first byte on, and zeros up to a multiple of 64 bytes.
//
// Error feedback of LoCo: h = array + error, in float, where `error` is the value of a message of 8
// bits; the message is that of h. With beta and 1 - beta in float, the next error of an element is
// (beta * error) + ((1 - beta) * (h - value of its code)), each operation rounded to float, and is
// kept as a message of 8 bits. Where errors are forgotten, `error` is 0. The error of a block of h
// that is not finite stays.
//
// A sum of messages adds the values of ranks 0, 1, ... in float and multiplies by a factor.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "brigade/tests/spec/sums.h"

namespace brigade::spec {

inline constexpr size_t kBlock = 256;

struct CodedBlock {
  float maximum = 0;
  std::vector<int> codes = std::vector<int>(kBlock, 0);
};

inline int LargestCode(int bits) { return (1 << (bits - 1)) - 1; }

inline CodedBlock Encode(const std::vector<float>& block, int bits) {
  CodedBlock coded;
  for (const float x : block) {
    if (!std::isfinite(x)) return {std::numeric_limits<float>::quiet_NaN()};
    coded.maximum = std::max(coded.maximum, std::fabs(x));
  }
  if (coded.maximum == 0) return coded;
  // Else the quotient of a tiny maximum would overflow.
  const float up = coded.maximum < 0x1p-100f ? 0x1p100f : 1.0f;
  const float codes_for_one = static_cast<float>(LargestCode(bits)) / (coded.maximum * up);
  for (size_t i = 0; i < block.size(); ++i) {
    coded.codes[i] = static_cast<int>(std::nearbyint(block[i] * up * codes_for_one));
  }
  return coded;
}

inline float Decode(float maximum, int code, int bits) {
  const float unit = 1.0f / static_cast<float>(LargestCode(bits));
  return maximum * (static_cast<float>(code) * unit);
}

inline size_t BlocksOf(size_t size) { return (size + kBlock - 1) / kBlock; }
inline size_t CodesBegin(size_t size) { return (BlocksOf(size) * 4 + 63) / 64 * 64; }

// The bytes of a message.
inline std::vector<uint8_t> Quantize(const std::vector<float>& values, int bits) {
  std::vector<uint8_t> message(CodesBegin(values.size()));
  for (size_t b = 0; b < BlocksOf(values.size()); ++b) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(b * kBlock);
    const size_t count = std::min(kBlock, values.size() - b * kBlock);
    const CodedBlock coded = Encode({first, first + static_cast<std::ptrdiff_t>(count)}, bits);
    std::memcpy(&message[b * 4], &coded.maximum, 4);
    for (size_t i = 0; i < (bits == 8 ? kBlock : kBlock / 2); ++i) {
      const int byte =
          bits == 8 ? coded.codes[i] : (coded.codes[i] & 15) + 16 * (coded.codes[i + 128] & 15);
      message.push_back(static_cast<uint8_t>(byte));
    }
  }
  return message;
}

inline std::vector<float> Dequantize(const std::vector<uint8_t>& message, size_t size, int bits) {
  std::vector<float> values;
  for (size_t i = 0; i < size; ++i) {
    float maximum;
    std::memcpy(&maximum, &message[i / kBlock * 4], 4);
    const size_t place = i % kBlock;
    const uint8_t* const codes = &message[CodesBegin(size)];
    int code;
    if (bits == 8) {
      code = static_cast<int8_t>(codes[i]);
    } else {
      const uint8_t byte = codes[i / kBlock * 128 + place % 128];
      const int half = place < 128 ? byte & 15 : byte >> 4;
      code = half < 8 ? half : half - 16;
    }
    values.push_back(Decode(maximum, code, bits));
  }
  return values;
}

inline std::vector<float> DequantReduce(const std::vector<std::vector<uint8_t>>& of_rank,
                                        size_t size, int bits, float factor) {
  std::vector<float> sums = Dequantize(of_rank[0], size, bits);
  for (size_t rank = 1; rank < of_rank.size(); ++rank) {
    const std::vector<float> values = Dequantize(of_rank[rank], size, bits);
    for (size_t i = 0; i < size; ++i) sums[i] += values[i];
  }
  for (float& sum : sums) sum *= factor;
  return sums;
}

// Updates the errors, a message.
inline std::vector<uint8_t> LocoQuantize(const std::vector<float>& array,
                                         std::vector<uint8_t>& errors, int bits, float beta,
                                         bool forget) {
  const size_t size = array.size();
  const std::vector<uint8_t> before = errors;
  std::vector<float> error = Dequantize(errors, size, 8);
  if (forget) error.assign(size, 0.0f);
  std::vector<float> h = array;
  for (size_t i = 0; i < size; ++i) h[i] += error[i];
  const std::vector<uint8_t> message = Quantize(h, bits);
  const std::vector<float> kept = Dequantize(message, size, bits);
  const float rest = 1.0f - beta;
  for (size_t i = 0; i < size; ++i) {
    const float old = beta * error[i], difference = h[i] - kept[i];
    const float left_out = rest * difference;
    error[i] = old + left_out;
  }
  errors = Quantize(error, 8);
  for (size_t b = 0; b < BlocksOf(size); ++b) {
    float maximum;
    std::memcpy(&maximum, &message[b * 4], 4);
    if (!std::isnan(maximum)) continue;
    std::memcpy(&errors[b * 4], &before[b * 4], 4);
    const size_t codes = CodesBegin(size) + b * kBlock;
    std::memcpy(&errors[codes], &before[codes], kBlock);
  }
  return message;
}

struct Signs {
  float scale = 0;
  // One for each segment.
  std::vector<std::vector<uint8_t>> messages;
};

// Updates the errors.
inline Signs PackSigns(const std::vector<std::vector<float>>& arrays,
                       std::vector<std::vector<float>>& errors) {
  std::vector<std::vector<float>> sums = arrays;
  size_t count = 0;
  for (size_t s = 0; s < sums.size(); ++s) {
    for (size_t i = 0; i < sums[s].size(); ++i) sums[s][i] += errors[s][i];
    count += sums[s].size();
  }
  Signs signs;
  const GradStats stats = SumOfSquares(sums);
  if (!stats.all_finite) {
    signs.scale = std::numeric_limits<float>::quiet_NaN();
  } else if (count > 0) {
    signs.scale = static_cast<float>(std::sqrt(stats.sum_of_squares / static_cast<double>(count)));
  }
  for (size_t s = 0; s < sums.size(); ++s) {
    const size_t size = sums[s].size();
    std::vector<uint8_t> message(size == 0 ? 0 : 64 + (size + 511) / 512 * 64);
    if (size > 0) std::memcpy(message.data(), &signs.scale, 4);
    for (size_t i = 0; i < size; ++i) {
      const float c = sums[s][i];
      if (c < 0) message[64 + i / 8] |= static_cast<uint8_t>(1 << i % 8);
      if (stats.all_finite) errors[s][i] = c - (c < 0 ? -signs.scale : signs.scale);
    }
    signs.messages.push_back(message);
  }
  return signs;
}

inline std::vector<float> UnpackSigns(const std::vector<std::vector<uint8_t>>& of_rank, size_t size,
                                      float factor) {
  std::vector<float> sums;
  for (size_t i = 0; i < size; ++i) {
    float sum = 0;
    for (size_t rank = 0; rank < of_rank.size(); ++rank) {
      float scale;
      std::memcpy(&scale, of_rank[rank].data(), 4);
      const bool negative = (of_rank[rank][64 + i / 8] >> i % 8 & 1) != 0;
      const float value = negative ? -scale : scale;
      sum = rank == 0 ? value : sum + value;
    }
    sums.push_back(sum * factor);
  }
  return sums;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_CODECS_H_
