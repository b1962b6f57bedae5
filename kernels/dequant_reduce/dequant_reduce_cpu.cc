// Sums of messages on the CPU: reads each message once and writes the target. Sums stay in
// registers while all ranks' codes are added, and in the first-level cache until they are quantised
// again.

#include "brigade/kernels/dequant_reduce/dequant_reduce_cpu.h"

#include <algorithm>

#include "brigade/kernels/block_quant/quant_blocks.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

// To blocks of a message, the last one filled up by zeros as those that are added.
template <QuantFormat kFormat, QuantFormat kTo, bool kPastCaches>
void Requantize(QuantContributions from, float* maxima, uint8_t* codes, int64_t blocks) {
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const CodesOf<decltype(simd)::kValue> lanes;
    alignas(64) float sums[kBlocksAtOnce * kQuantBlock];
    for (int64_t b = 0; b < blocks; b += kBlocksAtOnce) {
      const int64_t count = std::min(kBlocksAtOnce, blocks - b);
      for (int64_t k = 0; k < count; ++k) {
        DecodeBlock<kFormat, false, false>(lanes, from, sums + k * kQuantBlock);
        from = NextBlock<kFormat>(from);
      }
      EncodeBlocks<kTo, kPastCaches>(lanes, sums, count, maxima + b,
                                     codes + b * QuantBlockBytes(kTo));
    }
  });
}

}  // namespace

template <typename Target>
void DequantReduceRange(const DequantReduceSegment& segment, QuantFormat format,
                        const DequantReduceParameters& parameters, bool past_caches, int64_t begin,
                        int64_t end) {
  const int64_t block = begin / kQuantBlock;
  VisitQuantFormat(format, [&](auto constant) {
    constexpr QuantFormat kFormat = decltype(constant)::value;
    const QuantContributions from = {static_cast<const float*>(segment.messages) + block,
                                     static_cast<const uint8_t*>(segment.messages) +
                                         QuantCodesBegin(segment.size) +
                                         block * QuantBlockBytes(kFormat),
                                     parameters.ranks, parameters.stride, parameters.factor};
    if constexpr (kIsMessage<Target>) {
      constexpr QuantFormat kTo = Target::kTargetFormat;
      float* const maxima = static_cast<float*>(segment.target);
      uint8_t* const codes = static_cast<uint8_t*>(segment.target) + QuantCodesBegin(segment.size) +
                             block * QuantBlockBytes(kTo);
      const int64_t blocks = QuantBlocks(end - begin);
      past_caches ? Requantize<kFormat, kTo, true>(from, maxima + block, codes, blocks)
                  : Requantize<kFormat, kTo, false>(from, maxima + block, codes, blocks);
      if (end == segment.size) ZeroMaximaBehind(end, segment.target);
    } else {
      DecodeRange<kFormat, false>(from, static_cast<Target*>(segment.target) + begin, end - begin,
                                  past_caches);
    }
  });
}

#define BRIGADE_INSTANTIATE(Target)                                                       \
  template void DequantReduceRange<Target>(const DequantReduceSegment&, QuantFormat,      \
                                           const DequantReduceParameters&, bool, int64_t, \
                                           int64_t);
BRIGADE_FOR_EACH_DEQUANT_TARGET(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
