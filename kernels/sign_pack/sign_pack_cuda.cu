// Signs and their scale on the GPU: array and error are read twice, first for the norm, and the
// error is written, 20.1 bytes an element for fp32. A thread has 8 elements of both in flight, 64
// bytes at fp32: 64 to 80 KiB an SM. Sums are those of grad_check/, of elements that are sums
// themselves. Back, each rank's bits are read once and the array is written, 5 bytes an element of
// 8 ranks in fp32: 18 instructions, and 6 of a block's begin, where 36 are what a copy takes.

#include "brigade/kernels/grad_check/grad_check_cuda.h"
#include "brigade/kernels/grad_check/grad_check_tile.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/sign_pack/sign_pack_cuda.h"

namespace brigade::kernels {
namespace {

constexpr int kWarps = kTileThreads / kWarp;
constexpr int kBlocksPerSm = 4;  // 64 registers; untuned
// The blocks of a warp that unpacks, so that the search for the segment and the table are of few
// instructions an element.
constexpr int kUnpackBlocks = 4;

// Segments of 32 and of 24 bytes, with their first tiles, that fill a launch's arguments.
constexpr int kMaxPackSegments = 780;
constexpr int kMaxUnpackSegments = 1000;

template <int kCapacity>
struct SignPackArguments {
  // The sums of the tiles of the whole list.
  double* tile_sums;
  // The tiles of the list before this launch.
  int64_t tiles_before;
  const float* scale;
  SegmentBatch<SignPackSegment, kCapacity> batch;
};
template <int kCapacity>
struct SignUnpackArguments {
  SignUnpackParameters parameters;
  SegmentBatch<SignUnpackSegment, kCapacity> batch;
};
static_assert(sizeof(SignPackArguments<kMaxPackSegments>) <= kMaxLaunchArgumentBytes);
static_assert(sizeof(SignUnpackArguments<kMaxUnpackSegments>) <= kMaxLaunchArgumentBytes);

template <typename T>
__device__ bool PacksGroups(const SignPackSegment& s) {
  return HasWholeGroups(static_cast<const T*>(s.array)) && HasWholeGroups(s.error);
}

// The element, counted from a row's or block's begin, that thread `lane` holds as its j-th.
__device__ int PlaceOf(WholeBlock, int lane, int j) {
  return j / kBlockGroup * (kBlockGroup * kWarp) + lane * kBlockGroup + j % kBlockGroup;
}
__device__ int PlaceOf(EdgeBlock, int lane, int j) { return j * kWarp + lane; }

template <typename T>
__device__ Pack<float> WithErrors(const Pack<T>& elements, const Pack<float>& errors) {
  Pack<float> x;
  for (int j = 0; j < kPackSize; ++j) x.values[j] = WithError(elements.values[j], errors.values[j]);
  return x;
}

// tile_sums[t]: the sum of one tile, by one warp.
template <typename T, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    SignTileSumsKernel(const __grid_constant__ SignPackArguments<kCapacity> arguments) {
  __shared__ double shared[kWarps][kLanePlaces];
  const auto& batch = arguments.batch;
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t tile = int64_t{blockIdx.x} * kWarps + warp;
  if (tile >= batch.tiles()) return;  // the whole warp
  const int64_t index = batch.Find(tile);
  const SignPackSegment& s = batch.segments[index];
  const int64_t begin = (tile - batch.first_tile[index]) * kGradTile;
  const T* const array = static_cast<const T*>(s.array) + begin;
  const float* const error = s.error + begin;
  const int64_t left = s.size - begin;
  const int size = static_cast<int>(left < kGradTile ? left : kGradTile);

  const auto sum_lanes = [&](auto kind) {
    using Block = decltype(kind);
    double sums[kPackSize] = {};
    const auto add = [&](const Pack<float>& x) {
      for (int j = 0; j < kPackSize; ++j) sums[j] = AddSquare(sums[j], x.values[j]);
    };
    const int rows = size / kGradLanes;
    // One row in flight is enough, and two spill.
#pragma unroll 1
    for (int row = 0; row < rows; ++row) {
      // All rows here are whole: a chunk of either kind knows no end.
      const auto chunk = Block::Elements(row, lane, size);
      const auto elements = chunk.Load(array);
      add(WithErrors(elements, chunk.Load(error)));
    }
    Pack<float> rest = {};
    for (int j = 0; j < kPackSize; ++j) {
      const int i = rows * kGradLanes + PlaceOf(kind, lane, j);
      if (i < size) rest.values[j] = WithError(array[i], error[i]);
    }
    // Squares of elements that are not there are 0 and change nothing.
    add(rest);
    for (int j = 0; j < kPackSize; ++j) {
      shared[warp][LanePlace(PlaceOf(kind, lane, j))] = sums[j];
    }
  };
  PacksGroups<T>(s) ? sum_lanes(WholeBlock()) : sum_lanes(EdgeBlock());
  __syncwarp();
  double sum = __shfl_sync(0xffffffffu, HalveWarp(HalveToWarp(shared[warp], lane)), 0);
  if (MayOverflow(sum)) {
    bool found = false;
#pragma unroll 1
    for (int i = lane; i < size; i += kWarp) {
      found = found || Overflows(WithError(array[i], error[i]));
    }
    if (__any_sync(0xffffffffu, found)) sum = kTileOverflow;
  }
  if (lane == 0) arguments.tile_sums[arguments.tiles_before + tile] = sum;
}

__global__ void SignScaleKernel(const GradStats* stats, int64_t count, float* scale) {
  *scale = count == 0 ? 0.0f : SignScale(*stats, count);
}

// The bits of a thread's elements, to 32 bytes of a block.
__device__ void StoreBits(WholeBlock, const Pack<float>& x, uint8_t* bits, int lane) {
  for (int group = 0; group < kPackSize / kBlockGroup; ++group) {
    unsigned nibble = 0;
    for (int j = 0; j < kBlockGroup; ++j) {
      nibble |= static_cast<unsigned>(IsNegative(x.values[group * kBlockGroup + j])) << j;
    }
    const unsigned next = __shfl_down_sync(0xffffffffu, nibble, 1);
    if (lane % 2 == 0) bits[group * 16 + lane / 2] = static_cast<uint8_t>(nibble | next << 4);
  }
}
__device__ void StoreBits(EdgeBlock, const Pack<float>& x, uint8_t* bits, int lane) {
  for (int j = 0; j < kPackSize; ++j) {
    const unsigned word = __ballot_sync(0xffffffffu, IsNegative(x.values[j]));
    if (lane == j) reinterpret_cast<unsigned*>(bits)[j] = word;
  }
}

template <typename T, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    SignPackKernel(const __grid_constant__ SignPackArguments<kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const SignPackSegment& s = batch.segments[index];
  const int lane = threadIdx.x % kWarp;
  const float scale = *arguments.scale;
  uint8_t* const message = static_cast<uint8_t*>(s.message);
  const auto pack = [&](auto kind, auto, int64_t block) {
    const auto chunk = decltype(kind)::Elements(block, lane, s.size);
    const auto elements = chunk.Load(static_cast<const T*>(s.array));
    const Pack<float> x = WithErrors(elements, chunk.Load(s.error));
    constexpr int kBlockBytes = kWarpBlock / 8;
    uint8_t* const bits = message + kSignBitsBegin + block * kBlockBytes;
    StoreBits(kind, x, bits, lane);
    // Half a line behind an odd number of blocks.
    const int64_t blocks = CeilDiv(s.size, kWarpBlock);
    if (block + 1 == blocks && blocks % 2 != 0) bits[kBlockBytes + lane] = 0;
    if (block == 0 && lane < kSignBitsBegin / 4) {
      reinterpret_cast<float*>(message)[lane] = lane == 0 ? scale : 0.0f;
    }
    if (!IsNumber(scale)) return;
    Pack<float> left;
    for (int j = 0; j < kPackSize; ++j) left.values[j] = LeftOut(x.values[j], scale);
    chunk.Store(left, s.error);
  };
  ForBlocks<1>(PacksGroups<T>(s), s.size, blockIdx.x - batch.first_tile[index], threadIdx.x / kWarp,
               pack);
}

// The bits of a thread's elements in a block of four messages: bit j of byte i is that of element j
// in message i.
__device__ unsigned LoadBits(WholeBlock, const uint8_t* const (&messages)[4], int64_t begin,
                             int lane) {
  unsigned low = 0, high = 0;
  for (int i = 0; i < 4; ++i) {
    const uint8_t* const bits = messages[i] + begin + lane / 2;
    low += unsigned{bits[0]} << i * 8;
    high += unsigned{bits[16]} << i * 8;
  }
  const int shift = lane % 2 * 4;
  return (low >> shift & 0x0f0f0f0fu) | (high >> shift & 0x0f0f0f0fu) << 4;
}
__device__ unsigned LoadBits(EdgeBlock, const uint8_t* const (&messages)[4], int64_t begin,
                             int lane) {
  unsigned own = 0;
  for (int i = 0; i < 4; ++i) {
    const auto* const bits = reinterpret_cast<const unsigned*>(messages[i] + begin);
    for (int j = 0; j < kPackSize; ++j) own |= (bits[j] >> lane & 1u) << (i * 8 + j);
  }
  return own;
}

// Byte j of word i: bit j of the bytes of all words, from that of byte 0 of word 0 on.
__device__ void TransposeBits(unsigned (&words)[2]) {
  for (unsigned& word : words) {
    unsigned changed = (word ^ word >> 7) & 0x00aa00aau;
    word ^= changed ^ changed << 7;
    changed = (word ^ word >> 14) & 0x0000ccccu;
    word ^= changed ^ changed << 14;
  }
  const unsigned low = words[0];
  words[0] = (low & 0x0f0f0f0fu) | (words[1] & 0x0f0f0f0fu) << 4;
  words[1] = (low >> 4 & 0x0f0f0f0fu) | (words[1] & 0xf0f0f0f0u);
}

// A message has one scale, so that an element's sum over the first 8 ranks is one of 256, by their
// bits: a block adds each of them up once.
template <typename T, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    SignUnpackKernel(const __grid_constant__ SignUnpackArguments<kCapacity> arguments) {
  constexpr int kTableRanks = 8;
  __shared__ float table[1 << kTableRanks];
  static_assert(kTileThreads == 1 << kTableRanks);
  const auto& batch = arguments.batch;
  const SignUnpackParameters& p = arguments.parameters;
  const int64_t index = batch.Find(blockIdx.x);
  const SignUnpackSegment& s = batch.segments[index];
  const int lane = threadIdx.x % kWarp;
  T* const array = static_cast<T*>(s.array);
  const uint8_t* const messages = static_cast<const uint8_t*>(s.messages);
  const auto value_of = [&](int64_t rank, bool negative) {
    return SignValue(*reinterpret_cast<const float*>(messages + rank * p.stride), negative);
  };
  float entry = value_of(0, threadIdx.x % 2 != 0);
  for (int rank = 1; rank < kTableRanks; ++rank) {
    if (rank >= p.ranks) break;
    entry = precision::Add(entry, value_of(rank, (threadIdx.x >> rank & 1u) != 0));
  }
  table[threadIdx.x] = entry;
  __syncthreads();
  const auto unpack = [&](auto kind, auto count, int64_t first) {
    // The bits of four ranks from `rank` on. For ranks that are not there those of the last one.
    const auto messages_from = [&](int64_t rank, const uint8_t*(&bits)[4]) {
      bits[0] = messages + rank * p.stride + kSignBitsBegin;
      for (int i = 1; i < 4; ++i) bits[i] = bits[i - 1] + (rank + i < p.ranks ? p.stride : 0);
    };
    const uint8_t *low[4], *high[4];
    messages_from(0, low);
    messages_from(p.ranks > 4 ? 4 : 0, high);
#pragma unroll
    for (int b = 0; b < decltype(count)::value; ++b) {
      const int64_t begin = (first + b) * (kWarpBlock / 8);
      unsigned words[] = {LoadBits(kind, low, begin, lane), LoadBits(kind, high, begin, lane)};
      TransposeBits(words);
      float sums[kPackSize];
      for (int j = 0; j < kPackSize; ++j) sums[j] = table[words[j / 4] >> j % 4 * 8 & 255u];
#pragma unroll 1
      for (int64_t rank = kTableRanks; rank < p.ranks; rank += 4) {
        const uint8_t* more[4];
        messages_from(rank, more);
        const unsigned own = LoadBits(kind, more, begin, lane);
        for (int i = 0; i < 4; ++i) {
          if (rank + i >= p.ranks) break;
          for (int j = 0; j < kPackSize; ++j) {
            const bool negative = (own >> (i * 8 + j) & 1u) != 0;
            sums[j] = precision::Add(sums[j], value_of(rank + i, negative));
          }
        }
      }
      Pack<T> result;
      for (int j = 0; j < kPackSize; ++j) {
        result.values[j] = static_cast<T>(precision::Mul(sums[j], p.factor));
      }
      decltype(kind)::Elements(first + b, lane, s.size).Store(result, array);
    }
  };
  ForBlocks<kUnpackBlocks>(HasWholeGroups(array), s.size, blockIdx.x - batch.first_tile[index],
                           threadIdx.x / kWarp, unpack);
}

}  // namespace

template <typename T>
cudaError_t LaunchSignPack(const SignPackSegment* segments, int64_t count, double* workspace,
                           float* scale, cudaStream_t stream) {
  int64_t elements = 0, tiles = 0;
  for (int64_t i = 0; i < count; ++i) {
    elements += segments[i].size;
    tiles += CeilDiv(segments[i].size, kGradTile);
  }
  auto* const stats = reinterpret_cast<GradStats*>(workspace + tiles);
  static_assert(sizeof(GradStats) <= kSignStatsDoubles * sizeof(double));
  return WithCapacity<kMaxPackSegments>(count, [&](auto capacity) {
    SignPackArguments<capacity> arguments;
    arguments.tile_sums = workspace;
    arguments.scale = scale;
    cudaError_t error = ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const SignPackSegment& s) { return CeilDiv(s.size, kGradTile); }, arguments.batch,
        cudaSuccess,
        [&](int64_t tiles_before) {
          arguments.tiles_before = tiles_before;
          const auto blocks = static_cast<unsigned>(CeilDiv(arguments.batch.tiles(), kWarps));
          return LaunchKernel<SignTileSumsKernel<T, capacity>>(blocks, kTileThreads, stream,
                                                               arguments);
        });
    if (error != cudaSuccess) return error;
    error = LaunchGradCheckFinish(workspace, tiles, stats, stream);
    if (error != cudaSuccess) return error;
    error = LaunchKernel<SignScaleKernel>(1, 1, stream, stats, elements, scale);
    if (error != cudaSuccess) return error;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const SignPackSegment& s) { return BlockTiles<1>(s.size); }, arguments.batch,
        cudaSuccess,
        [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return LaunchKernel<SignPackKernel<T, capacity>>(blocks, kTileThreads, stream, arguments);
        });
  });
}

template <typename T>
cudaError_t LaunchSignUnpack(const SignUnpackSegment* segments, int64_t count,
                             const SignUnpackParameters& parameters, cudaStream_t stream) {
  return WithCapacity<kMaxUnpackSegments>(count, [&](auto capacity) {
    SignUnpackArguments<capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const SignUnpackSegment& s) { return BlockTiles<kUnpackBlocks>(s.size); },
        arguments.batch, cudaSuccess,
        [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return LaunchKernel<SignUnpackKernel<T, capacity>>(blocks, kTileThreads, stream,
                                                             arguments);
        });
  });
}

#define BRIGADE_INSTANTIATE(T)                                                             \
  template cudaError_t LaunchSignPack<T>(const SignPackSegment*, int64_t, double*, float*, \
                                         cudaStream_t);                                    \
  template cudaError_t LaunchSignUnpack<T>(const SignUnpackSegment*, int64_t,              \
                                           const SignUnpackParameters&, cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
