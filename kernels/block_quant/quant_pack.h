#ifndef BRIGADE_KERNELS_BLOCK_QUANT_QUANT_PACK_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_QUANT_PACK_H_

// A thread's elements of a block on the GPU, and their codes, in plain C++: for the kernels of
// block_quant, dequant_reduce and loco_quant.
//
// A warp takes a block (gpu_blocks.h). Elements j and j + 4 of a thread are 128 apart, so that
// their int4 codes share a byte, and a warp moves codes in whole sectors.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

static_assert(kQuantBlock == kWarpBlock);

// Bytes of a thread's codes in a block.
template <QuantFormat kFormat>
inline constexpr int kCodeBytes = kFormat == QuantFormat::kInt8 ? kPackSize : kPackSize / 2;

template <QuantFormat kFormat>
using CodePack = Pack<uint8_t, kCodeBytes<kFormat>>;

// A message's parts.
template <typename Byte>
struct QuantMessage {
  Byte* message;
  int64_t size;

  BRIGADE_HOST_DEVICE auto* maxima() const {
    if constexpr (std::is_const_v<Byte>) {
      return reinterpret_cast<const float*>(message);
    } else {
      return reinterpret_cast<float*>(message);
    }
  }
  BRIGADE_HOST_DEVICE Byte* codes() const { return message + QuantCodesBegin(size); }
};

// The codes of thread `lane` in block `block`, of a thread with such elements.
template <QuantFormat kFormat>
BRIGADE_INLINE auto CodesOfThread(WholeBlock, int64_t block, int lane) {
  return WholeChunk<kBlockGroup, kCodeBytes<kFormat>>(block * QuantBlockBytes(kFormat), lane);
}
template <QuantFormat kFormat>
BRIGADE_INLINE auto CodesOfThread(EdgeBlock, int64_t block, int lane) {
  const int64_t begin = block * QuantBlockBytes(kFormat);
  return EdgeChunk<kCodeBytes<kFormat>>(begin, lane, begin + QuantBlockBytes(kFormat));
}

template <typename T>
BRIGADE_INLINE Pack<float> Widened(const Pack<T>& pack) {
  Pack<float> wide;
  if constexpr (std::is_same_v<T, precision::BFloat16>) {
    // From words: nvcc takes an instruction more for each upper half.
    uint32_t words[kPackSize / 2];
    std::memcpy(words, pack.values, sizeof(words));
    for (int j = 0; j < kPackSize; ++j) {
      const uint32_t word = words[j / 2];
      wide.values[j] = __builtin_bit_cast(float, j % 2 == 0 ? word << 16 : word & 0xffff0000u);
    }
  } else {
    for (int j = 0; j < kPackSize; ++j) wide.values[j] = static_cast<float>(pack.values[j]);
  }
  return wide;
}

// The largest magnitude of a thread's elements.
BRIGADE_INLINE int32_t LargestOf(const Pack<float>& x) {
  int32_t largest = 0;
  for (const float value : x.values) {
    const int32_t magnitude = QuantMagnitude(value);
    largest = largest < magnitude ? magnitude : largest;
  }
  return largest;
}

// Four bytes of a thread's codes.
template <int kBytes>
BRIGADE_INLINE uint32_t WordOf(const Pack<uint8_t, kBytes>& codes, int i = 0) {
  uint32_t word;
  std::memcpy(&word, codes.values + i * sizeof(word), sizeof(word));
  return word;
}

// Where the int4 code of a thread's element j begins in their word.
BRIGADE_INLINE constexpr int Int4Shift(int j) { return j % 4 * 8 + j / 4 * 4; }

// The low bytes of four words.
BRIGADE_INLINE uint32_t LowBytes(const uint32_t* words) {
#ifdef __CUDA_ARCH__
  return __byte_perm(__byte_perm(words[0], words[1], 0x0040),
                     __byte_perm(words[2], words[3], 0x0040), 0x5410);
#else
  return (words[0] & 255) | (words[1] & 255) << 8 | (words[2] & 255) << 16 | words[3] << 24;
#endif
}

// Writes the codes of a thread's elements x, and what the message holds beside them; `largest` is
// the largest magnitude of the whole block. Gives the codes of a finite block as numbers.
template <typename Block, QuantFormat kFormat>
BRIGADE_INLINE Pack<float> StoreBlock(const Pack<float>& x, int32_t largest,
                                      const QuantMessage<uint8_t>& to, int64_t block, int lane) {
  const BlockCoder coder = MakeBlockCoder<kFormat>(largest);
  Pack<float> units, numbers;
  // A branch of the whole warp.
  if (coder.up == 1.0f) {
    for (int j = 0; j < kPackSize; ++j) {
      units.values[j] = precision::Mul(x.values[j], coder.inverse);
    }
  } else {
    for (int j = 0; j < kPackSize; ++j) {
      units.values[j] = precision::Mul(precision::Mul(x.values[j], coder.up), coder.inverse);
    }
  }
  uint32_t codes[kPackSize];
  for (int j = 0; j < kPackSize; ++j) {
    codes[j] = RoundedCode(units.values[j]);
    numbers.values[j] = NumberOf(codes[j]);
  }
  uint32_t words[kCodeBytes<kFormat> / 4];
  words[0] = LowBytes(codes);
  if constexpr (kFormat == QuantFormat::kInt8) {
    words[1] = LowBytes(codes + 4);
  } else {
    words[0] = (words[0] & 0x0f0f0f0fu) | (LowBytes(codes + 4) << 4 & 0xf0f0f0f0u);
  }
  CodePack<kFormat> bytes;
  for (uint32_t& word : words) word = IsNonFinite(largest) ? 0 : word;
  std::memcpy(bytes.values, words, sizeof(words));
  CodesOfThread<kFormat>(Block(), block, lane).Store(bytes, to.codes());
  if (lane == 0) to.maxima()[block] = coder.maximum;
  // The room behind the last maximum is less than a line of 16.
  if (block == 0 && lane < QuantMaxima(to.size) - QuantBlocks(to.size)) {
    to.maxima()[QuantBlocks(to.size) + lane] = 0.0f;
  }
  return numbers;
}

// The values of codes as numbers.
template <QuantFormat kFormat>
BRIGADE_INLINE Pack<float> ValuesOf(float maximum, const Pack<float>& numbers) {
  Pack<float> values;
  for (int j = 0; j < kPackSize; ++j) {
    values.values[j] = ValueOf<kFormat>(maximum, numbers.values[j]);
  }
  return values;
}

// Byte `i` of a word, an int8 code plus 128, as a number: as the low bits of one of 2^23 and more,
// whose unit is 1. A conversion takes four times as long.
BRIGADE_INLINE float ByteNumber(uint32_t word, int i) {
  constexpr uint32_t kTwo23 = 0x4b000000;
#ifdef __CUDA_ARCH__
  const uint32_t bits = __byte_perm(word, kTwo23, 0x7650 + i);
#else
  const uint32_t bits = kTwo23 | (word >> i * 8 & 255);
#endif
  return precision::Sub(__builtin_bit_cast(float, bits), 0x1p23f + 128.0f);
}

template <QuantFormat kFormat>
BRIGADE_INLINE Pack<float> ValuesOf(float maximum, const CodePack<kFormat>& codes) {
  Pack<float> numbers;
  for (int j = 0; j < kPackSize; ++j) {
    if constexpr (kFormat == QuantFormat::kInt8) {
      numbers.values[j] = ByteNumber(WordOf(codes, j / 4) ^ 0x80808080u, j % 4);
    } else {
      const uint32_t at_top = WordOf(codes) << (28 - Int4Shift(j));
      numbers.values[j] = static_cast<float>(static_cast<int32_t>(at_top) >> 28);
    }
  }
  return ValuesOf<kFormat>(maximum, numbers);
}

template <typename T>
BRIGADE_INLINE Pack<T> Narrowed(const Pack<float>& wide) {
  Pack<T> pack;
  for (int j = 0; j < kPackSize; ++j) pack.values[j] = static_cast<T>(wide.values[j]);
  return pack;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_QUANT_PACK_H_
