// Blocks with their errors to codes and next errors on the CPU: reads 4 or 2 bytes of the array and
// 1 of the error an element, writes 1 of the error and 1 or 1/2 of the message. Values between are
// in the first-level cache, 12 KiB of them. Stores stay in the caches: the error's lines were read
// into them, and the message is sent next.

#include "brigade/kernels/loco_quant/loco_quant_cpu.h"

#include <algorithm>
#include <cstring>

#include "brigade/kernels/block_quant/quant_blocks.h"
#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {
namespace {

// Fetches the lines 4 and 8 KiB further on than what is read: by themselves processors waited for
// memory, half of the time as g++ 16 arranges the loads. They drop a part of what they are asked
// for while they wait for much; asked twice, blocks of fp32 take a tenth less time.
BRIGADE_INLINE void FetchAhead(const void* from, int64_t bytes) {
  constexpr int64_t kAhead = 4096;
  const char* const at = static_cast<const char*>(from) + kAhead;
  for (int64_t i = 0; i < bytes; i += kCacheLine) {
    __builtin_prefetch(at + i);
    __builtin_prefetch(at + i + kAhead);
  }
}

// Fetches lines to write, 1 KiB further on than what is written: stores to the first-level cache
// wait in turn behind one that has no line yet.
BRIGADE_INLINE void FetchToWrite(const void* to, int64_t bytes) {
  constexpr int64_t kAhead = 1024;
  const char* const at = static_cast<const char*>(to) + kAhead;
  for (int64_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(at + i, /*rw=*/1);
}

// AddErrors(lanes, x, maximum, codes, errors, sums): of a block and of the message of its errors.
// Returns the largest magnitude of the sums.
template <typename T>
BRIGADE_INLINE int32_t AddErrors(NoLanes, const T* x, float maximum, const uint8_t* codes,
                                 float* errors, float* sums) {
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    errors[i] = ValueOf<kLocoErrors>(maximum, static_cast<int8_t>(codes[i]));
    sums[i] = WithLocoError(x[i], errors[i]);
  }
  int32_t largest = 0;
  for (int64_t i = 0; i < kQuantBlock; ++i) largest = std::max(largest, QuantMagnitude(sums[i]));
  return largest;
}

// KeepErrors(lanes, coder, parameters, sums, codes, errors): codes a finite block of sums and makes
// the next errors of the ones before, of which it returns the largest magnitude. What the codes
// keep is known before they are stored.
template <QuantFormat kFormat>
BRIGADE_INLINE int32_t KeepErrors(NoLanes, const BlockCoder& coder,
                                  const LocoParameters& parameters, const float* sums,
                                  uint8_t* codes, float* errors) {
  constexpr int64_t kHalf = kQuantBlock / 2;
  const float beta = parameters.beta, rest = precision::Sub(1.0f, beta);
  uint32_t wide[kQuantBlock];
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    wide[i] = CodeOf(coder, sums[i]);
    const float kept = ValueOf<kFormat>(coder.maximum, NumberOf(wide[i]));
    errors[i] = NextLocoError(beta, rest, errors[i], sums[i], kept);
  }
  if constexpr (kFormat == QuantFormat::kInt8) {
    BRIGADE_SIMD_LOOP
    for (int64_t i = 0; i < kQuantBlock; ++i) codes[i] = static_cast<uint8_t>(wide[i]);
  } else {
    BRIGADE_SIMD_LOOP
    for (int64_t i = 0; i < kHalf; ++i) codes[i] = JoinCodes(wide[i], wide[i + kHalf]);
  }
  int32_t largest = 0;
  for (int64_t i = 0; i < kQuantBlock; ++i) largest = std::max(largest, QuantMagnitude(errors[i]));
  return largest;
}

#ifdef __x86_64__

#define BRIGADE_LOCO_BLOCKS(Codes, TARGET)                                                       \
  template <typename T>                                                                          \
  TARGET int32_t AddErrors(Codes, const T* x, float of_errors, const uint8_t* codes,             \
                           float* errors, float* sums) {                                         \
    using Lanes = typename Codes::Lanes;                                                         \
    constexpr int64_t kSize = Lanes::kSize;                                                      \
    const auto unit = Lanes::Fill(1.0f / kLargestCode<kLocoErrors>);                             \
    const auto maximum = Lanes::Fill(of_errors);                                                 \
    typename Codes::Words largest = Codes::Zero();                                               \
    for (int64_t i = 0; i < kQuantBlock; i += 2 * kSize) {                                       \
      FetchAhead(x + i, 2 * kSize * static_cast<int64_t>(sizeof(T)));                            \
      typename Lanes::Floats error[2], sum[2];                                                   \
      for (int64_t k = 0; k < 2; ++k) {                                                          \
        const auto code = Codes::ToFloats(Codes::LoadCodes(codes + i + k * kSize));              \
        error[k] = maximum * (code * unit);                                                      \
        sum[k] = Lanes::Load(x + i + k * kSize) + error[k];                                      \
        largest = Codes::Larger32(largest, Codes::Bits(sum[k]));                                 \
      }                                                                                          \
      Lanes::template Store<false>(errors + i, error[0], error[1]);                              \
      Lanes::template Store<false>(sums + i, sum[0], sum[1]);                                    \
    }                                                                                            \
    return Codes::Largest32(largest);                                                            \
  }                                                                                              \
                                                                                                 \
  template <QuantFormat kFormat, bool kUp>                                                       \
  TARGET int32_t KeepErrors(Codes, const BlockCoder& coder, const LocoParameters& parameters,    \
                            const float* sums, uint8_t* codes, float* errors) {                  \
    using Lanes = typename Codes::Lanes;                                                         \
    constexpr int64_t kSize = Lanes::kSize;                                                      \
    constexpr int kParts = kFormat == QuantFormat::kInt8 ? 1 : 2;                                \
    const auto up = Lanes::Fill(coder.up), inverse = Lanes::Fill(coder.inverse);                 \
    const auto round = Lanes::Fill(0x1.8p23f);                                                   \
    const auto maximum = Lanes::Fill(coder.maximum);                                             \
    const auto unit = Lanes::Fill(1.0f / kLargestCode<kFormat>);                                 \
    /* A register holds what all int4 codes keep. */                                             \
    constexpr bool kTable = kFormat == QuantFormat::kInt4 && Codes::kBytes == 64;                \
    const auto table = kTable ? Codes::Scale4(maximum, unit) : maximum;                          \
    const auto beta = Lanes::Fill(parameters.beta);                                              \
    const auto rest = Lanes::Fill(precision::Sub(1.0f, parameters.beta));                        \
    typename Codes::Words largest = Codes::Zero();                                               \
    for (int64_t i = 0; i < QuantBlockBytes(kFormat); i += 4 * kSize) {                          \
      typename Codes::Words words[4];                                                            \
      for (int k = 0; k < 4; k += 2) {                                                           \
        for (int part = kParts - 1; part >= 0; --part) {                                         \
          const int64_t at = i + k * kSize + part * kQuantBlock / 2;                             \
          typename Lanes::Floats next[2];                                                        \
          for (int j = 0; j < 2; ++j) {                                                          \
            const auto sum = Lanes::Load(sums + at + j * kSize);                                 \
            auto units = sum;                                                                    \
            if (kUp) units = units * up;                                                         \
            const auto rounded = units * inverse + round;                                        \
            const auto kept = kTable ? Codes::Low4(table, unit, Codes::Bits(rounded))            \
                                     : maximum * ((rounded - round) * unit);                     \
            next[j] = beta * Lanes::Load(errors + at + j * kSize) + rest * (sum - kept);         \
            largest = Codes::Larger32(largest, Codes::Bits(next[j]));                            \
            const auto code = Codes::Bits(rounded);                                              \
            words[k + j] = part == kParts - 1 ? code : Codes::Join(code, words[k + j]);          \
          }                                                                                      \
          Lanes::template Store<false>(errors + at, next[0], next[1]);                           \
        }                                                                                        \
      }                                                                                          \
      Codes::template Store<false>(codes + i, words);                                            \
    }                                                                                            \
    return Codes::Largest32(largest);                                                            \
  }                                                                                              \
                                                                                                 \
  template <QuantFormat kFormat>                                                                 \
  TARGET int32_t KeepErrors(Codes lanes, const BlockCoder& coder,                                \
                            const LocoParameters& parameters, const float* sums, uint8_t* codes, \
                            float* errors) {                                                     \
    return coder.up == 1.0f                                                                      \
               ? KeepErrors<kFormat, false>(lanes, coder, parameters, sums, codes, errors)       \
               : KeepErrors<kFormat, true>(lanes, coder, parameters, sums, codes, errors);       \
  }
BRIGADE_LOCO_BLOCKS(Avx512Codes, BRIGADE_TARGET_AVX512_LANES)
BRIGADE_LOCO_BLOCKS(Avx2Codes, BRIGADE_TARGET_AVX2_LANES)
#undef BRIGADE_LOCO_BLOCKS

#endif  // __x86_64__

// The parts of a message from one block on.
struct Parts {
  float* maxima;
  uint8_t* codes;
};

BRIGADE_INLINE Parts PartsOf(void* message, int64_t size, QuantFormat format, int64_t block) {
  return {static_cast<float*>(message) + block,
          static_cast<uint8_t*>(message) + QuantCodesBegin(size) + block * QuantBlockBytes(format)};
}

// `count` blocks from `first` on, at most kBlocksAtOnce: the divisions that find their coders do
// not wait for each other.
template <QuantFormat kFormat, typename Codes, typename T>
BRIGADE_INLINE void QuantizeBlocks(Codes lanes, const LocoParameters& parameters, const T* x,
                                   const Parts& error, const Parts& message, int64_t first,
                                   int64_t count) {
  constexpr uint8_t kNoErrors[kQuantBlock] = {};
  alignas(64) float errors[kBlocksAtOnce * kQuantBlock], sums[kBlocksAtOnce * kQuantBlock];
  BlockCoder coders[kBlocksAtOnce];
  for (int64_t b = 0; b < count; ++b) {
    const int64_t block = first + b;
    const uint8_t* const codes = error.codes + block * kQuantBlock;
    FetchAhead(codes, kQuantBlock);
    const int32_t largest = AddErrors(
        lanes, x + b * kQuantBlock, parameters.forget ? 0.0f : error.maxima[block],
        parameters.forget ? kNoErrors : codes, errors + b * kQuantBlock, sums + b * kQuantBlock);
    coders[b] = MakeBlockCoder<kFormat>(largest);
  }
  BlockCoder of_errors[kBlocksAtOnce];
  for (int64_t b = 0; b < count; ++b) {
    const int64_t block = first + b;
    uint8_t* const codes = message.codes + block * QuantBlockBytes(kFormat);
    FetchToWrite(codes, QuantBlockBytes(kFormat));
    message.maxima[block] = coders[b].maximum;
    if (coders[b].maximum != coders[b].maximum) {
      std::memset(codes, 0, QuantBlockBytes(kFormat));
      continue;
    }
    of_errors[b] = MakeBlockCoder<kLocoErrors>(KeepErrors<kFormat>(
        lanes, coders[b], parameters, sums + b * kQuantBlock, codes, errors + b * kQuantBlock));
  }
  for (int64_t b = 0; b < count; ++b) {
    const int64_t block = first + b;
    // The errors of a block that is not finite stay as they are.
    if (coders[b].maximum != coders[b].maximum) continue;
    error.maxima[block] = of_errors[b].maximum;
    EncodeBlock<kLocoErrors, false>(lanes, of_errors[b], errors + b * kQuantBlock,
                                    error.codes + block * kQuantBlock);
  }
}

// All whole blocks of `size` elements, and one more of those that are left.
template <QuantFormat kFormat, typename T>
void QuantizeAll(const LocoParameters& parameters, const T* x, const Parts& error,
                 const Parts& message, int64_t size) {
  const int64_t whole = size / kQuantBlock, rest = size % kQuantBlock;
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const CodesOf<decltype(simd)::kValue> lanes;
    for (int64_t b = 0; b < whole; b += kBlocksAtOnce) {
      QuantizeBlocks<kFormat>(lanes, parameters, x + b * kQuantBlock, error, message, b,
                              std::min(kBlocksAtOnce, whole - b));
    }
    if (rest == 0) return;
    T padded[kQuantBlock] = {};
    std::copy(x + whole * kQuantBlock, x + size, padded);
    QuantizeBlocks<kFormat>(lanes, parameters, padded, error, message, whole, 1);
  });
}

}  // namespace

template <typename T>
void LocoQuantizeRange(const LocoSegment& segment, QuantFormat format,
                       const LocoParameters& parameters, int64_t begin, int64_t end) {
  const int64_t block = begin / kQuantBlock;
  const T* const array = static_cast<const T*>(segment.array) + begin;
  VisitQuantFormat(format, [&](auto constant) {
    constexpr QuantFormat kFormat = decltype(constant)::value;
    QuantizeAll<kFormat>(parameters, array,
                         PartsOf(segment.error, segment.size, kLocoErrors, block),
                         PartsOf(segment.message, segment.size, kFormat, block), end - begin);
  });
  if (end == segment.size) ZeroMaximaBehind(end, segment.message);
}

#define BRIGADE_INSTANTIATE(T)                                                               \
  template void LocoQuantizeRange<T>(const LocoSegment&, QuantFormat, const LocoParameters&, \
                                     int64_t, int64_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
