// Sums of messages on the CPU: reads each message once and writes the target. Sums stay in
// registers while all ranks' codes are added, and in the first-level cache until they are quantised
// again.

#include "brigade/kernels/dequant_reduce/dequant_reduce_cpu.h"

#include <algorithm>

#include "brigade/kernels/block_quant/quant_blocks.h"
#include "brigade/kernels/block_quant/quant_lanes.h"
#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

// RequantizeRuns(lanes, from, maxima, codes, blocks): Requantize of as many of `blocks` as it takes
// at once, which it returns.
template <QuantFormat kFormat, QuantFormat kTo, bool kPastCaches, typename Lanes>
BRIGADE_INLINE int64_t RequantizeRuns(Lanes, QuantContributions, float*, uint8_t*, int64_t) {
  return 0;
}

#ifdef __x86_64__

#define BRIGADE_WORDS_FUNCTION BRIGADE_TARGET_AVX512_LANES __attribute__((always_inline)) inline

// Of int4 to int4, where the order of elements does not count: sums[8 * line + k] are of the k-th
// half bytes of a line's 16 words, which are indices into a table of the values that codes have,
// and codes of sums are put together as words again. Codes one by one, as DecodeBlock takes them
// for arrays, were half of the instructions that a processor has two units for.
constexpr int kLinesOfBlock = 2, kHalfBytes = 8, kSumsOfBlock = kLinesOfBlock * kHalfBytes;
// How far ahead of them codes are fetched: best of 1, 2, 4 and 8 KiB on Zen 5.
constexpr int64_t kFetchWordsAhead = 2048;

// Whole bytes of words are shifted by where a word is loaded, up to 3 bytes behind the block.
template <bool kFirst>
BRIGADE_WORDS_FUNCTION void AddWords(const QuantContributions& from, int64_t rank,
                                     Avx512Lanes::Floats (&sums)[kSumsOfBlock]) {
  const uint8_t* const codes = from.codes + rank * from.stride;
  const auto table =
      Avx512Codes::Scale4(Avx512Lanes::Fill(MaximumOf(from, rank)),
                          Avx512Lanes::Fill(1.0f / kLargestCode<QuantFormat::kInt4>));
  for (int line = 0; line < kLinesOfBlock; ++line) {
    FetchLine(codes + line * kCacheLine + kFetchWordsAhead);
    for (int k = 0; k < kHalfBytes; ++k) {
      const auto words = Avx512Codes::Load(codes + line * kCacheLine + k / 2);
      const auto value = k % 2 == 0 ? Avx512Codes::Low4(table, table, words)
                                    : Avx512Codes::High4(table, table, words);
      auto& sum = sums[line * kHalfBytes + k];
      sum = kFirst ? value : sum + value;
    }
  }
}

// To `sums`, line by line, k by k. Returns the largest magnitude.
BRIGADE_WORDS_FUNCTION int32_t SumWords(const QuantContributions& from, float* to) {
  Avx512Lanes::Floats sums[kSumsOfBlock];
  AddWords<true>(from, 0, sums);
  for (int64_t rank = 1; rank < from.ranks; ++rank) AddWords<false>(from, rank, sums);
  const auto factor = Avx512Lanes::Fill(from.factor);
  Avx512Codes::Words largest[2] = {Avx512Codes::Zero(), Avx512Codes::Zero()};
  for (int i = 0; i < kSumsOfBlock; i += 2) {
    const auto low = sums[i] * factor, high = sums[i + 1] * factor;
    largest[0] = Avx512Codes::Larger32(largest[0], Avx512Codes::Bits(low));
    largest[1] = Avx512Codes::Larger32(largest[1], Avx512Codes::Bits(high));
    Avx512Lanes::Store<false>(to + i * Avx512Lanes::kSize, low, high);
  }
  return Avx512Codes::Largest32(Avx512Codes::Larger32(largest[0], largest[1]));
}

template <bool kPastCaches, bool kUp>
BRIGADE_WORDS_FUNCTION void EncodeWords(const BlockCoder& coder, const float* sums,
                                        uint8_t* codes) {
  const auto up = Avx512Lanes::Fill(coder.up), inverse = Avx512Lanes::Fill(coder.inverse);
  const auto round = Avx512Lanes::Fill(0x1.8p23f);
  for (int line = 0; line < kLinesOfBlock; ++line) {
    Avx512Codes::Words words = Avx512Codes::Zero();
    for (int k = 0; k < kHalfBytes; ++k) {
      auto units = Avx512Lanes::Load(sums + (line * kHalfBytes + k) * Avx512Lanes::kSize);
      if (kUp) units = units * up;
      words = Avx512Codes::JoinHalfByte(words, Avx512Codes::Bits(units * inverse + round), k);
    }
    Avx512Codes::StoreWords<kPastCaches>(codes + line * kCacheLine, words);
  }
}

// All but the last block, behind which there may be nothing to load.
template <QuantFormat kFormat, QuantFormat kTo, bool kPastCaches>
BRIGADE_TARGET_AVX512_LANES int64_t RequantizeRuns(Avx512Codes, QuantContributions from,
                                                   float* maxima, uint8_t* codes, int64_t blocks) {
  if constexpr (kFormat != QuantFormat::kInt4 || kTo != QuantFormat::kInt4) return 0;
  alignas(64) float sums[kBlocksAtOnce * kQuantBlock];
  BlockCoder coders[kBlocksAtOnce];
  for (int64_t begin = 0; begin < blocks - 1; begin += kBlocksAtOnce) {
    const int64_t end = std::min(begin + kBlocksAtOnce, blocks - 1);
    for (int64_t b = begin; b < end; ++b) {
      coders[b - begin] =
          MakeBlockCoder<QuantFormat::kInt4>(SumWords(from, sums + (b - begin) * kQuantBlock));
      from = NextBlock<kFormat>(from);
    }
    for (int64_t b = begin; b < end; ++b) {
      const BlockCoder& coder = coders[b - begin];
      const float* const of_block = sums + (b - begin) * kQuantBlock;
      uint8_t* const to = codes + b * QuantBlockBytes(kTo);
      maxima[b] = coder.maximum;
      if (coder.maximum != coder.maximum) {
        std::fill(to, to + QuantBlockBytes(kTo), uint8_t{0});
      } else if (coder.up == 1.0f) {
        EncodeWords<kPastCaches, false>(coder, of_block, to);
      } else {
        EncodeWords<kPastCaches, true>(coder, of_block, to);
      }
    }
  }
  return std::max<int64_t>(blocks - 1, 0);
}
#undef BRIGADE_WORDS_FUNCTION

#endif  // __x86_64__

// To blocks of a message, the last one filled up by zeros as those that are added.
template <QuantFormat kFormat, QuantFormat kTo, bool kPastCaches>
void Requantize(QuantContributions from, float* maxima, uint8_t* codes, int64_t blocks) {
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    const CodesOf<decltype(simd)::kValue> lanes;
    const int64_t done =
        RequantizeRuns<kFormat, kTo, kPastCaches>(lanes, from, maxima, codes, blocks);
    from.maximum += done;
    from.codes += done * QuantBlockBytes(kFormat);
    alignas(64) float sums[kBlocksAtOnce * kQuantBlock];
    for (int64_t b = done; b < blocks; b += kBlocksAtOnce) {
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
