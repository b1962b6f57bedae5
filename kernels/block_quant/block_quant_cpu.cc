// Blocks to codes and back on the CPU: reads the source and writes the target once, 4 or 2 bytes an
// element on one side and 1 or 1/2 on the other. A block is read twice, the second time from the
// first-level cache.

#include "brigade/kernels/block_quant/block_quant_cpu.h"

#include <algorithm>

#include "brigade/kernels/block_quant/quant_blocks.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {
namespace {

// All whole blocks, and one more of `rest` elements.
template <QuantFormat kFormat, bool kPastCaches, typename T>
void Quantize(const T* array, float* maxima, uint8_t* codes, int64_t size) {
  const int64_t whole = size / kQuantBlock;
  const int64_t rest = size % kQuantBlock;
  constexpr int64_t kBytes = QuantBlockBytes(kFormat);
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const CodesOf<decltype(simd)::kValue> lanes;
    for (int64_t b = 0; b < whole; b += kBlocksAtOnce) {
      EncodeBlocks<kFormat, kPastCaches, kFetchAhead>(lanes, array + b * kQuantBlock,
                                                      std::min(kBlocksAtOnce, whole - b),
                                                      maxima + b, codes + b * kBytes);
    }
    if (rest == 0) return;
    T padded[kQuantBlock] = {};
    std::copy(array + whole * kQuantBlock, array + size, padded);
    EncodeBlocks<kFormat, kPastCaches>(lanes, padded, 1, maxima + whole, codes + whole * kBytes);
  });
}

}  // namespace

template <typename T>
void BlockQuantizeRange(const QuantizeSegment& segment, QuantFormat format, bool past_caches,
                        int64_t begin, int64_t end) {
  float* const maxima = static_cast<float*>(segment.message);
  uint8_t* const codes = static_cast<uint8_t*>(segment.message) + QuantCodesBegin(segment.size);
  const T* const array = static_cast<const T*>(segment.array) + begin;
  const int64_t block = begin / kQuantBlock;
  VisitQuantFormat(format, [&](auto constant) {
    constexpr QuantFormat kFormat = decltype(constant)::value;
    uint8_t* const to = codes + block * QuantBlockBytes(kFormat);
    past_caches ? Quantize<kFormat, true>(array, maxima + block, to, end - begin)
                : Quantize<kFormat, false>(array, maxima + block, to, end - begin);
  });
  if (end == segment.size) ZeroMaximaBehind(end, segment.message);
}

template <typename T>
void BlockDequantizeRange(const DequantizeSegment& segment, QuantFormat format, bool past_caches,
                          int64_t begin, int64_t end) {
  const float* const maxima = static_cast<const float*>(segment.message);
  const uint8_t* const codes =
      static_cast<const uint8_t*>(segment.message) + QuantCodesBegin(segment.size);
  const int64_t block = begin / kQuantBlock;
  VisitQuantFormat(format, [&](auto constant) {
    constexpr QuantFormat kFormat = decltype(constant)::value;
    const QuantContributions from = {maxima + block, codes + block * QuantBlockBytes(kFormat),
                                     /*ranks=*/1, /*stride=*/0, /*factor=*/1.0f};
    DecodeRange<kFormat, true>(from, static_cast<T*>(segment.array) + begin, end - begin,
                               past_caches);
  });
}

#define BRIGADE_INSTANTIATE(T)                                                                \
  template void BlockQuantizeRange<T>(const QuantizeSegment&, QuantFormat, bool, int64_t,     \
                                      int64_t);                                               \
  template void BlockDequantizeRange<T>(const DequantizeSegment&, QuantFormat, bool, int64_t, \
                                        int64_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
