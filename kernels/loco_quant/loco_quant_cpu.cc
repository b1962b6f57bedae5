// Blocks with their errors to codes and next errors on the CPU: reads 4 or 2 bytes of the array and
// 1 of the error an element, writes 1 of the error and 1 or 1/2 of the message. Values between are
// in the first-level cache, 12 KiB of them. Stores stay in the caches: the error's lines were read
// into them, and the codes of the message are read again at once.

#include "brigade/kernels/loco_quant/loco_quant_cpu.h"

#include <algorithm>

#include "brigade/kernels/block_quant/quant_blocks.h"
#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {
namespace {

// Fetches the lines 4 KiB further on than what is read: by themselves processors waited for memory,
// half of the time as g++ 16 arranges the loads.
BRIGADE_INLINE void FetchAhead(const void* from, int64_t bytes) {
  constexpr int64_t kAhead = 4096;
  const char* const at = static_cast<const char*>(from) + kAhead;
  for (int64_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(at + i);
}

// AddErrors(lanes, x, errors, sums): of a block.
template <typename T>
BRIGADE_INLINE void AddErrors(NoLanes, const T* x, const float* errors, float* sums) {
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < kQuantBlock; ++i) sums[i] = WithLocoError(x[i], errors[i]);
}

#ifdef __x86_64__

#define BRIGADE_ADD_ERRORS(Codes, TARGET)                                             \
  template <typename T>                                                               \
  TARGET void AddErrors(Codes, const T* x, const float* errors, float* sums) {        \
    using Lanes = typename Codes::Lanes;                                              \
    constexpr int64_t kSize = Lanes::kSize;                                           \
    for (int64_t i = 0; i < kQuantBlock; i += 2 * kSize) {                            \
      FetchAhead(x + i, 2 * kSize * static_cast<int64_t>(sizeof(T)));                 \
      const auto low = Lanes::Load(x + i) + Lanes::Load(errors + i);                  \
      const auto high = Lanes::Load(x + i + kSize) + Lanes::Load(errors + i + kSize); \
      Lanes::template Store<false>(sums + i, low, high);                              \
    }                                                                                 \
  }
BRIGADE_ADD_ERRORS(Avx512Codes, BRIGADE_TARGET_AVX512_LANES)
BRIGADE_ADD_ERRORS(Avx2Codes, BRIGADE_TARGET_AVX2_LANES)
#undef BRIGADE_ADD_ERRORS

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

template <QuantFormat kFormat, typename Codes>
BRIGADE_INLINE void DecodeAlone(Codes lanes, const Parts& parts, int64_t block, float* values) {
  const QuantContributions from = {parts.maxima + block,
                                   parts.codes + block * QuantBlockBytes(kFormat), /*ranks=*/1,
                                   /*stride=*/0, /*factor=*/1.0f};
  DecodeBlock<kFormat, false, /*kOne=*/true>(lanes, from, values);
}

// `count` blocks from `first` on, at most kBlocksAtOnce.
template <QuantFormat kFormat, typename Codes, typename T>
BRIGADE_INLINE void QuantizeBlocks(Codes lanes, const LocoParameters& parameters, const T* x,
                                   const Parts& error, const Parts& message, int64_t first,
                                   int64_t count) {
  alignas(64) float errors[kBlocksAtOnce * kQuantBlock], sums[kBlocksAtOnce * kQuantBlock];
  if (parameters.forget) std::fill_n(errors, count * kQuantBlock, 0.0f);
  for (int64_t b = 0; b < count; ++b) {
    float* const of_block = errors + b * kQuantBlock;
    FetchAhead(error.codes + (first + b) * kQuantBlock, kQuantBlock);
    if (!parameters.forget) DecodeAlone<kLocoErrors>(lanes, error, first + b, of_block);
    AddErrors(lanes, x + b * kQuantBlock, of_block, sums + b * kQuantBlock);
  }
  EncodeBlocks<kFormat, false>(lanes, sums, count, message.maxima + first,
                               message.codes + first * QuantBlockBytes(kFormat));
  const float beta = parameters.beta, rest = precision::Sub(1.0f, beta);
  bool finite = true;
  for (int64_t b = 0; b < count; ++b) {
    const float maximum = message.maxima[first + b];
    finite = finite && maximum == maximum;
    alignas(64) float kept[kQuantBlock];
    DecodeAlone<kFormat>(lanes, message, first + b, kept);
    float* const of_block = errors + b * kQuantBlock;
    const float* const sum = sums + b * kQuantBlock;
    BRIGADE_SIMD_LOOP
    for (int64_t i = 0; i < kQuantBlock; ++i) {
      of_block[i] = NextLocoError(beta, rest, of_block[i], sum[i], kept[i]);
    }
  }
  if (finite) {
    EncodeBlocks<kLocoErrors, false>(lanes, errors, count, error.maxima + first,
                                     error.codes + first * kQuantBlock);
    return;
  }
  for (int64_t b = 0; b < count; ++b) {
    const float maximum = message.maxima[first + b];
    if (maximum != maximum) continue;
    EncodeBlocks<kLocoErrors, false>(lanes, errors + b * kQuantBlock, 1, error.maxima + first + b,
                                     error.codes + (first + b) * kQuantBlock);
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
