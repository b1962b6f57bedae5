#ifndef BRIGADE_KERNELS_BLOCK_QUANT_QUANT_PACK_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_QUANT_PACK_H_

// A thread's elements of a block on the GPU, and their codes, in plain C++: for the kernels of
// block_quant, dequant_reduce and loco_quant.
//
// A warp takes a block (gpu_blocks.h). Elements j and j + 4 of a thread are 128 apart, so that
// their int4 codes share a byte, and a warp moves codes in whole sectors.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/gpu_tile.h"

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
  for (int j = 0; j < kPackSize; ++j) wide.values[j] = static_cast<float>(pack.values[j]);
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

// Writes the codes of a thread's elements x, and what the message holds beside them; `largest` is
// the largest magnitude of the whole block. Gives the codes.
template <typename Block, QuantFormat kFormat>
BRIGADE_INLINE CodePack<kFormat> StoreBlock(const Pack<float>& x, int32_t largest,
                                            const QuantMessage<uint8_t>& to, int64_t block,
                                            int lane) {
  const BlockCoder coder = MakeBlockCoder<kFormat>(largest);
  const bool non_finite = IsNonFinite(largest);
  const auto code = [&](int j) { return non_finite ? 0u : CodeOf(coder, x.values[j]); };
  CodePack<kFormat> codes;
  for (int j = 0; j < kCodeBytes<kFormat>; ++j) {
    if constexpr (kFormat == QuantFormat::kInt8) {
      codes.values[j] = static_cast<uint8_t>(code(j));
    } else {
      codes.values[j] = JoinCodes(code(j), code(j + kPackSize / 2));
    }
  }
  CodesOfThread<kFormat>(Block(), block, lane).Store(codes, to.codes());
  if (lane == 0) to.maxima()[block] = coder.maximum;
  // The room behind the last maximum is less than a line of 16.
  if (block + 1 == QuantBlocks(to.size) && block + 1 + lane < QuantMaxima(to.size)) {
    to.maxima()[block + 1 + lane] = 0.0f;
  }
  return codes;
}

template <QuantFormat kFormat>
BRIGADE_INLINE Pack<float> ValuesOf(float maximum, const CodePack<kFormat>& codes) {
  Pack<float> values;
  for (int j = 0; j < kCodeBytes<kFormat>; ++j) {
    if constexpr (kFormat == QuantFormat::kInt8) {
      values.values[j] = ValueOf<kFormat>(maximum, static_cast<int8_t>(codes.values[j]));
    } else {
      values.values[j] = ValueOf<kFormat>(maximum, LowCode(codes.values[j]));
      values.values[j + kPackSize / 2] = ValueOf<kFormat>(maximum, HighCode(codes.values[j]));
    }
  }
  return values;
}

template <typename T>
BRIGADE_INLINE Pack<T> Narrowed(const Pack<float>& wide) {
  Pack<T> pack;
  for (int j = 0; j < kPackSize; ++j) pack.values[j] = static_cast<T>(wide.values[j]);
  return pack;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_QUANT_PACK_H_
