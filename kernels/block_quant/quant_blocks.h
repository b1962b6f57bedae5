#ifndef BRIGADE_KERNELS_BLOCK_QUANT_QUANT_BLOCKS_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_QUANT_BLOCKS_H_

// Whole blocks of an array to codes, and sums of codes to a block, on the CPU: what the loops of
// block_quant, dequant_reduce and loco_quant are made of. Call them in a body of RunSimdWithTag
// (simd.h), with the lanes of its target as first argument.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/block_quant/quant_lanes.h"
#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// Of one block, the codes of several ranks at equal distances, and what a sum is multiplied by.
struct QuantContributions {
  // Of rank 0.
  const float* maximum;
  const uint8_t* codes;
  int64_t ranks;
  // Bytes between the messages of two ranks.
  int64_t stride;
  float factor;
};

BRIGADE_INLINE float MaximumOf(const QuantContributions& from, int64_t rank) {
  float maximum;
  std::memcpy(&maximum, reinterpret_cast<const char*>(from.maximum) + rank * from.stride,
              sizeof(maximum));
  return maximum;
}

// The maxima behind a message's last block, of which its loops write the others.
inline void ZeroMaximaBehind(int64_t size, void* message) {
  float* const maxima = static_cast<float*>(message);
  std::fill(maxima + QuantBlocks(size), maxima + QuantMaxima(size), 0.0f);
}

// EncodeBlocks(lanes, x, count, maxima, codes): `count` blocks of elements from `x` on, at most
// kBlocksAtOnce: their maxima are found before the first is coded, since one by one each waits for
// a division. Past the caches, `codes` are at a multiple of 64.
inline constexpr int64_t kBlocksAtOnce = 4;

// kAhead of EncodeBlocks for elements that come from memory, in bytes: how far ahead of them lines
// are fetched. Coding turns from reading to writing every few blocks, and by themselves processors
// then wait for memory, by up to half of the time as the order of a compiler's instructions has it.
inline constexpr int64_t kFetchAhead = 8192;
// The same of DecodeBlock for the codes of several ranks, of which a block has so few lines each
// that processors do not look ahead by themselves: 8 ranks take 0.4 of the time.
inline constexpr int64_t kFetchCodesAhead = 1024;
// The ranks that DecodeBlock adds without a loop: with a jump for each, 8 ranks took from memory up
// to twice as long of int8 codes, and 1.05 to 1.3 times as long of int4, as the compiler had it.
inline constexpr int kRanksWithoutLoop = 4;

// EncodeBlock(lanes, coder, x, codes): the codes of one block.
template <QuantFormat kFormat, bool kPastCaches>
BRIGADE_INLINE void EncodeBlock(NoLanes, const BlockCoder& coder, const float* x, uint8_t* codes) {
  constexpr int64_t kHalf = kQuantBlock / 2;
  if (coder.maximum != coder.maximum) {
    std::memset(codes, 0, QuantBlockBytes(kFormat));
  } else if constexpr (kFormat == QuantFormat::kInt8) {
    BRIGADE_SIMD_LOOP
    for (int64_t i = 0; i < kQuantBlock; ++i) codes[i] = static_cast<uint8_t>(CodeOf(coder, x[i]));
  } else {
    BRIGADE_SIMD_LOOP
    for (int64_t i = 0; i < kHalf; ++i) {
      codes[i] = JoinCodes(CodeOf(coder, x[i]), CodeOf(coder, x[i + kHalf]));
    }
  }
}

template <QuantFormat kFormat, bool kPastCaches, int64_t kAhead = 0, typename T>
BRIGADE_INLINE void EncodeBlocks(NoLanes lanes, const T* x, int64_t count, float* maxima,
                                 uint8_t* codes) {
  for (int64_t b = 0; b < count; ++b, x += kQuantBlock, codes += QuantBlockBytes(kFormat)) {
    float wide[kQuantBlock];
    BRIGADE_SIMD_LOOP
    for (int64_t i = 0; i < kQuantBlock; ++i) wide[i] = static_cast<float>(x[i]);
    int32_t largest = 0;
    for (int64_t i = 0; i < kQuantBlock; ++i) {
      const int32_t magnitude = QuantMagnitude(wide[i]);
      largest = largest < magnitude ? magnitude : largest;
    }
    const BlockCoder coder = MakeBlockCoder<kFormat>(largest);
    maxima[b] = coder.maximum;
    EncodeBlock<kFormat, kPastCaches>(lanes, coder, wide, codes);
  }
}

// DecodeBlock(lanes, contributions, y): their sum in ascending order of ranks, times the factor, to
// the block of elements `y`; past the caches, at a multiple of 64. With kOne there is one rank, and
// the factor is 1.
template <QuantFormat kFormat, bool kPastCaches, bool kOne, typename T>
BRIGADE_INLINE void DecodeBlock(NoLanes, const QuantContributions& from, T* y) {
  constexpr int64_t kHalf = kQuantBlock / 2;
  float sums[kQuantBlock];
  for (int64_t rank = 0; rank < from.ranks; ++rank) {
    const float maximum = MaximumOf(from, rank);
    const uint8_t* const codes = from.codes + rank * from.stride;
    float values[kQuantBlock];
    if constexpr (kFormat == QuantFormat::kInt8) {
      BRIGADE_SIMD_LOOP
      for (int64_t i = 0; i < kQuantBlock; ++i) {
        values[i] = ValueOf<kFormat>(maximum, static_cast<int8_t>(codes[i]));
      }
    } else {
      BRIGADE_SIMD_LOOP
      for (int64_t i = 0; i < kHalf; ++i) {
        values[i] = ValueOf<kFormat>(maximum, LowCode(codes[i]));
        values[i + kHalf] = ValueOf<kFormat>(maximum, HighCode(codes[i]));
      }
    }
    if (rank == 0) {
      std::memcpy(sums, values, sizeof(sums));
      continue;
    }
    BRIGADE_SIMD_LOOP
    for (int64_t i = 0; i < kQuantBlock; ++i) sums[i] = precision::Add(sums[i], values[i]);
  }
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    y[i] = static_cast<T>(precision::Mul(sums[i], from.factor));
  }
}

#ifdef __x86_64__

// The same with lanes. Macros, since a template cannot say for which instructions it is compiled.
#define BRIGADE_QUANT_FUNCTION(TARGET) TARGET __attribute__((always_inline)) inline
#define BRIGADE_QUANT_BLOCKS(Codes, TARGET)                                                      \
  template <int64_t kAhead>                                                                      \
  BRIGADE_QUANT_FUNCTION(TARGET)                                                                 \
  int32_t LargestMagnitude(Codes, const float* x) {                                              \
    typename Codes::Words words = Codes::Zero();                                                 \
    const char* const bytes = reinterpret_cast<const char*>(x);                                  \
    for (int64_t i = 0; i < kQuantBlock * 4; i += Codes::kBytes) {                               \
      if (kAhead > 0) FetchLine(bytes + kAhead + i);                                             \
      words = Codes::Larger32(words, Codes::Load(bytes + i));                                    \
    }                                                                                            \
    return Codes::Largest32(words);                                                              \
  }                                                                                              \
                                                                                                 \
  template <int64_t kAhead, typename T>                                                          \
  BRIGADE_QUANT_FUNCTION(TARGET)                                                                 \
  int32_t LargestMagnitude(Codes, const T* x) {                                                  \
    typename Codes::Words words = Codes::Zero();                                                 \
    const char* const bytes = reinterpret_cast<const char*>(x);                                  \
    for (int64_t i = 0; i < kQuantBlock * 2; i += Codes::kBytes) {                               \
      if (kAhead > 0) FetchLine(bytes + kAhead + i);                                             \
      words = Codes::Larger16(words, Codes::Load(bytes + i));                                    \
    }                                                                                            \
    return QuantMagnitude(static_cast<float>(T::FromBits(Codes::Largest16(words))));             \
  }                                                                                              \
                                                                                                 \
  template <QuantFormat kFormat, bool kPastCaches, bool kUp, typename T>                         \
  BRIGADE_QUANT_FUNCTION(TARGET)                                                                 \
  void EncodeFinite(Codes, const T* x, const BlockCoder& coder, uint8_t* codes) {                \
    using Lanes = typename Codes::Lanes;                                                         \
    constexpr int64_t kSize = Lanes::kSize;                                                      \
    const auto up = Lanes::Fill(coder.up);                                                       \
    const auto inverse = Lanes::Fill(coder.inverse);                                             \
    const auto round = Lanes::Fill(0x1.8p23f);                                                   \
    for (int64_t i = 0; i < QuantBlockBytes(kFormat); i += 4 * kSize) {                          \
      typename Codes::Words words[4];                                                            \
      for (int k = 0; k < 4; ++k) {                                                              \
        for (int part = kFormat == QuantFormat::kInt8 ? 0 : 1; part >= 0; --part) {              \
          auto units = Lanes::Load(x + i + k * kSize + part * kQuantBlock / 2);                  \
          if (kUp) units = units * up;                                                           \
          const auto code = Codes::Bits(units * inverse + round);                                \
          words[k] =                                                                             \
              kFormat == QuantFormat::kInt8 || part == 1 ? code : Codes::Join(code, words[k]);   \
        }                                                                                        \
      }                                                                                          \
      Codes::template Store<kPastCaches>(codes + i, words);                                      \
    }                                                                                            \
  }                                                                                              \
                                                                                                 \
  template <QuantFormat kFormat, bool kPastCaches, typename T>                                   \
  TARGET void EncodeBlock(Codes lanes, const BlockCoder& coder, const T* x, uint8_t* codes) {    \
    if (coder.maximum != coder.maximum) {                                                        \
      std::memset(codes, 0, QuantBlockBytes(kFormat));                                           \
    } else if (coder.up != 1.0f) {                                                               \
      EncodeFinite<kFormat, kPastCaches, true>(lanes, x, coder, codes);                          \
    } else {                                                                                     \
      EncodeFinite<kFormat, kPastCaches, false>(lanes, x, coder, codes);                         \
    }                                                                                            \
  }                                                                                              \
                                                                                                 \
  template <QuantFormat kFormat, bool kPastCaches, int64_t kAhead = 0, typename T>               \
  TARGET void EncodeBlocks(Codes lanes, const T* x, int64_t count, float* maxima,                \
                           uint8_t* codes) {                                                     \
    BlockCoder coders[kBlocksAtOnce];                                                            \
    for (int64_t b = 0; b < count; ++b) {                                                        \
      coders[b] = MakeBlockCoder<kFormat>(LargestMagnitude<kAhead>(lanes, x + b * kQuantBlock)); \
    }                                                                                            \
    for (int64_t b = 0; b < count; ++b, x += kQuantBlock, codes += QuantBlockBytes(kFormat)) {   \
      maxima[b] = coders[b].maximum;                                                             \
      EncodeBlock<kFormat, kPastCaches>(lanes, coders[b], x, codes);                             \
    }                                                                                            \
  }                                                                                              \
                                                                                                 \
  template <QuantFormat kFormat, bool kFirst, int kLoads, int kSums>                             \
  BRIGADE_QUANT_FUNCTION(TARGET)                                                                 \
  void AddCodes(Codes, float of_rank, const uint8_t* from,                                       \
                typename Codes::Lanes::Floats(&sums)[kSums]) {                                   \
    using Lanes = typename Codes::Lanes;                                                         \
    const auto unit = Lanes::Fill(1.0f / kLargestCode<kFormat>);                                 \
    const auto maximum = Lanes::Fill(of_rank);                                                   \
    constexpr int kParts = kSums / kLoads;                                                       \
    const auto scale = kParts == 1 ? maximum : Codes::Scale4(maximum, unit);                     \
    for (int k = 0; k < kLoads; ++k) {                                                           \
      const auto codes = Codes::LoadCodes(from + k * Lanes::kSize);                              \
      for (int part = 0; part < kParts; ++part) {                                                \
        const auto value = kParts == 1 ? maximum * (Codes::ToFloats(codes) * unit)               \
                           : part == 0 ? Codes::Low4(scale, unit, codes)                         \
                                       : Codes::High4(scale, unit, codes);                       \
        auto& sum = sums[part * kLoads + k];                                                     \
        sum = kFirst ? value : sum + value;                                                      \
      }                                                                                          \
    }                                                                                            \
  }                                                                                              \
                                                                                                 \
  /* The codes from `i` on of kRanks ranks from `rank` on, in ascending order without a loop. */ \
  template <QuantFormat kFormat, bool kFirst, int kRanks, int kLoads, int kSums>                 \
  BRIGADE_QUANT_FUNCTION(TARGET)                                                                 \
  void AddRanks(Codes lanes, const QuantContributions& from, int64_t rank, int64_t i,            \
                typename Codes::Lanes::Floats(&sums)[kSums]) {                                   \
    const uint8_t* const codes = from.codes + rank * from.stride + i;                            \
    FetchLine(codes + kFetchCodesAhead);                                                         \
    AddCodes<kFormat, kFirst, kLoads>(lanes, MaximumOf(from, rank), codes, sums);                \
    if constexpr (kRanks > 1) {                                                                  \
      AddRanks<kFormat, false, kRanks - 1, kLoads>(lanes, from, rank + 1, i, sums);              \
    }                                                                                            \
  }                                                                                              \
                                                                                                 \
  template <QuantFormat kFormat, bool kPastCaches, bool kOne, typename T>                        \
  TARGET void DecodeBlock(Codes lanes, const QuantContributions& from, T* y) {                   \
    using Lanes = typename Codes::Lanes;                                                         \
    constexpr int kParts = kFormat == QuantFormat::kInt8 ? 1 : 2;                                \
    /* Of several ranks a line each, or as much of it as there are registers for. */             \
    constexpr int kLoads = kOne ? 2 : Codes::kBytes / 16;                                        \
    constexpr int64_t kStep = kLoads * Lanes::kSize;                                             \
    const auto factor = Lanes::Fill(from.factor);                                                \
    for (int64_t i = 0; i < QuantBlockBytes(kFormat); i += kStep) {                              \
      typename Lanes::Floats sums[kLoads * kParts];                                              \
      constexpr int kRanks = kRanksWithoutLoop;                                                  \
      int64_t rank = 1;                                                                          \
      if (kOne) {                                                                                \
        AddCodes<kFormat, true, kLoads>(lanes, *from.maximum, from.codes + i, sums);             \
      } else if (from.ranks >= kRanks) {                                                         \
        AddRanks<kFormat, true, kRanks, kLoads>(lanes, from, 0, i, sums);                        \
        rank = kRanks;                                                                           \
      } else {                                                                                   \
        AddRanks<kFormat, true, 1, kLoads>(lanes, from, 0, i, sums);                             \
      }                                                                                          \
      for (; rank + kRanks <= from.ranks && !kOne; rank += kRanks) {                             \
        AddRanks<kFormat, false, kRanks, kLoads>(lanes, from, rank, i, sums);                    \
      }                                                                                          \
      for (; rank < from.ranks && !kOne; ++rank) {                                               \
        AddRanks<kFormat, false, 1, kLoads>(lanes, from, rank, i, sums);                         \
      }                                                                                          \
      for (int k = 0; k < kLoads * kParts; k += 2) {                                             \
        auto low = sums[k], high = sums[k + 1];                                                  \
        if (!kOne) low = low * factor, high = high * factor;                                     \
        Lanes::template Store<kPastCaches>(                                                      \
            y + i + k % kLoads * Lanes::kSize + k / kLoads * kQuantBlock / 2, low, high);        \
      }                                                                                          \
    }                                                                                            \
  }
BRIGADE_QUANT_BLOCKS(Avx512Codes, BRIGADE_TARGET_AVX512_LANES)
BRIGADE_QUANT_BLOCKS(Avx2Codes, BRIGADE_TARGET_AVX2_LANES)
BRIGADE_QUANT_BLOCKS(Avx512BFloat16Codes, BRIGADE_TARGET_AVX512_BFLOAT16_LANES)
#undef BRIGADE_QUANT_BLOCKS
#undef BRIGADE_QUANT_FUNCTION

#endif  // __x86_64__

// The same contributions of the next block.
template <QuantFormat kFormat>
BRIGADE_INLINE QuantContributions NextBlock(QuantContributions from) {
  ++from.maximum;
  from.codes += QuantBlockBytes(kFormat);
  return from;
}

// DecodeBlock by the best instructions for this block.
template <QuantFormat kFormat, bool kPastCaches, bool kOne, typename Codes, typename T>
BRIGADE_INLINE void DecodeBlockBest(Codes lanes, [[maybe_unused]] bool rounds_to_bfloat16,
                                    const QuantContributions& from, T* y) {
#ifdef __x86_64__
  if constexpr (std::is_same_v<Codes, Avx512Codes> && std::is_same_v<T, precision::BFloat16> &&
                kOne) {
    // Where no value is subnormal, nor NaN.
    if (rounds_to_bfloat16 && (*from.maximum >= 0x1p-100f || *from.maximum == 0.0f)) {
      return DecodeBlock<kFormat, kPastCaches, kOne>(Avx512BFloat16Codes(), from, y);
    }
  }
#endif
  DecodeBlock<kFormat, kPastCaches, kOne>(lanes, from, y);
}

template <QuantFormat kFormat, bool kPastCaches, bool kOne, typename T>
void DecodeBlocks(QuantContributions from, T* array, int64_t size) {
  const int64_t whole = size / kQuantBlock;
  const int64_t rest = size % kQuantBlock;
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const CodesOf<decltype(simd)::kValue> lanes;
    const bool bfloat16 = SimdMultipliesBFloat16();
    for (int64_t b = 0; b < whole; ++b) {
      DecodeBlockBest<kFormat, kPastCaches, kOne>(lanes, bfloat16, from, array + b * kQuantBlock);
      from = NextBlock<kFormat>(from);
    }
    if (rest == 0) return;
    T padded[kQuantBlock];
    DecodeBlock<kFormat, false, kOne>(lanes, from, padded);
    std::copy(padded, padded + rest, array + whole * kQuantBlock);
  });
}

// The sum of the contributions, of which `from` are the first block's, to `size` elements of
// `array`, where a block begins.
template <QuantFormat kFormat, bool kOne, typename T>
void DecodeRange(const QuantContributions& from, T* array, int64_t size, bool past_caches) {
  // Stores past the caches are of whole lines, so to such arrays alone.
  past_caches&& ElementsToLine(array) == 0 ? DecodeBlocks<kFormat, true, kOne>(from, array, size)
                                           : DecodeBlocks<kFormat, false, kOne>(from, array, size);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_QUANT_BLOCKS_H_
