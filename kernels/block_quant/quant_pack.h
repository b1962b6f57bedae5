#ifndef BRIGADE_KERNELS_BLOCK_QUANT_QUANT_PACK_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_QUANT_PACK_H_

// A thread's elements of a block on the GPU, and their codes, in plain C++: the kernels of
// block_quant and dequant_reduce call it, and tests run it on the host.
//
// A warp takes a block of 256 elements, a thread 8 of them: two groups of 4, at 4 * lane and 128
// elements further, where the block lies whole in an array that begins at a group's boundary; else
// every 32nd. Either way elements j and j + 4 of a thread are 128 apart, so that their int4 codes
// share a byte, and a warp moves codes in whole sectors.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"

namespace brigade::kernels {

// The elements that a thread moves at once.
inline constexpr int kQuantGroup = 4;
// The elements of a thread in a block.
inline constexpr int kQuantPack = static_cast<int>(kQuantBlock / kWarp);

// Bytes of a thread's codes in a block.
template <QuantFormat kFormat>
inline constexpr int kCodeBytes = kFormat == QuantFormat::kInt8 ? kQuantPack : kQuantPack / 2;

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

// Whether warps take groups of this array.
template <typename T>
BRIGADE_HOST_DEVICE bool HasWholeGroups(const T* array) {
  return reinterpret_cast<uintptr_t>(array) % (kQuantGroup * sizeof(T)) == 0;
}

// The elements and codes of thread `lane` in block `block` of an array with whole groups.
struct WholeBlock {
  template <QuantFormat kFormat>
  using Codes = WholeChunk<kQuantGroup, kCodeBytes<kFormat>>;

  BRIGADE_INLINE static auto Elements(int64_t block, int lane, int64_t) {
    return WholeChunk<kQuantGroup, kQuantPack>(block * kQuantBlock, lane);
  }
  template <QuantFormat kFormat>
  BRIGADE_INLINE static auto CodesOf(int64_t block, int lane) {
    return Codes<kFormat>(block * QuantBlockBytes(kFormat), lane);
  }
};

// The same of a block that reaches beyond the array's `size`, or of an array without whole groups.
struct EdgeBlock {
  BRIGADE_INLINE static auto Elements(int64_t block, int lane, int64_t size) {
    return EdgeChunk<kQuantPack>(block * kQuantBlock, lane, size);
  }
  template <QuantFormat kFormat>
  BRIGADE_INLINE static auto CodesOf(int64_t block, int lane) {
    const int64_t begin = block * QuantBlockBytes(kFormat);
    return EdgeChunk<kCodeBytes<kFormat>>(begin, lane, begin + QuantBlockBytes(kFormat));
  }
};

template <typename T>
BRIGADE_INLINE Pack<float> Widened(const Pack<T>& pack) {
  Pack<float> wide;
  for (int j = 0; j < kQuantPack; ++j) wide.values[j] = static_cast<float>(pack.values[j]);
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
// the largest magnitude of the whole block.
template <typename Block, QuantFormat kFormat>
BRIGADE_INLINE void StoreBlock(const Pack<float>& x, int32_t largest,
                               const QuantMessage<uint8_t>& to, int64_t block, int lane) {
  const BlockCoder coder = MakeBlockCoder<kFormat>(largest);
  const bool non_finite = IsNonFinite(largest);
  const auto code = [&](int j) { return non_finite ? 0u : CodeOf(coder, x.values[j]); };
  CodePack<kFormat> codes;
  for (int j = 0; j < kCodeBytes<kFormat>; ++j) {
    if constexpr (kFormat == QuantFormat::kInt8) {
      codes.values[j] = static_cast<uint8_t>(code(j));
    } else {
      codes.values[j] = JoinCodes(code(j), code(j + kQuantPack / 2));
    }
  }
  Block::template CodesOf<kFormat>(block, lane).Store(codes, to.codes());
  if (lane == 0) to.maxima()[block] = coder.maximum;
  // The room behind the last maximum is less than a line of 16.
  if (block + 1 == QuantBlocks(to.size) && block + 1 + lane < QuantMaxima(to.size)) {
    to.maxima()[block + 1 + lane] = 0.0f;
  }
}

template <QuantFormat kFormat>
BRIGADE_INLINE Pack<float> ValuesOf(float maximum, const CodePack<kFormat>& codes) {
  Pack<float> values;
  for (int j = 0; j < kCodeBytes<kFormat>; ++j) {
    if constexpr (kFormat == QuantFormat::kInt8) {
      values.values[j] = ValueOf<kFormat>(maximum, static_cast<int8_t>(codes.values[j]));
    } else {
      values.values[j] = ValueOf<kFormat>(maximum, LowCode(codes.values[j]));
      values.values[j + kQuantPack / 2] = ValueOf<kFormat>(maximum, HighCode(codes.values[j]));
    }
  }
  return values;
}

template <typename T>
BRIGADE_INLINE Pack<T> Narrowed(const Pack<float>& wide) {
  Pack<T> pack;
  for (int j = 0; j < kQuantPack; ++j) pack.values[j] = static_cast<T>(wide.values[j]);
  return pack;
}

// Tiles of kTileThreads threads, whose warps take kBlocks blocks each.
template <int kBlocks>
BRIGADE_HOST_DEVICE int64_t QuantTiles(int64_t size) {
  return CeilDiv(QuantBlocks(size), kBlocks * (kTileThreads / kWarp));
}

// Calls run(Block(), std::integral_constant(count), first) for the blocks of warp `warp` of tile
// `tile` in a segment: for all of them where they lie whole in the array, else for one after the
// other.
template <int kBlocks, typename T, typename Run>
BRIGADE_INLINE void ForBlocks(const T* array, int64_t size, int64_t tile, int warp,
                              const Run& run) {
  const int64_t first = (tile * (kTileThreads / kWarp) + warp) * kBlocks;
  if (HasWholeGroups(array) && (first + kBlocks) * kQuantBlock <= size) {
    run(WholeBlock(), std::integral_constant<int, kBlocks>(), first);
  } else {
    for (int64_t block = first; block < first + kBlocks && block * kQuantBlock < size; ++block) {
      run(EdgeBlock(), std::integral_constant<int, 1>(), block);
    }
  }
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_QUANT_PACK_H_
