#ifndef BRIGADE_KERNELS_DIGEST_DIGEST_TILE_H_
#define BRIGADE_KERNELS_DIGEST_DIGEST_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernel calls it, and tests run it on the host.
//
// A warp takes a tile of 32 KiB in chunks of 2048 bytes that begin at sectors, the 16 bytes of its
// threads side by side, from the last chunk to the first: so the powers within a chunk are
// constants of the program, and between chunks the sums are multiplied by one (Horner's rule). In
// the chunks at the ends of a run, what is outside is not loaded and counts as 0. Where the words
// of the tensor do not lie at words of the memory, which only odd cuts of tensors do, a thread puts
// every 32nd word together from its bytes.

#include <cstdint>

#include "brigade/kernels/digest/digest_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"

namespace brigade::kernels {

// Bytes; untuned. A segment's runs are whole in a tile if they are not longer.
inline constexpr int64_t kDigestTile = 32768;
// Groups of 16 bytes that a thread loads before it multiplies the first.
inline constexpr int kDigestGroups = 4;
inline constexpr int kDigestGroupWords = 4;
// Words from a group of a thread to its next one, and of a chunk.
inline constexpr int kDigestRow = kWarp * kDigestGroupWords;
inline constexpr int64_t kDigestChunk = kDigestGroups * kDigestRow;

// Segments of 48 bytes, with their first tiles, that fill a launch's arguments.
inline constexpr int kMaxDigestSegments = 580;

template <int kCapacity = kMaxDigestSegments>
struct DigestArguments {
  TensorDigest* digests;
  SegmentBatch<DigestSegment, kCapacity> batch;
};
static_assert(sizeof(DigestArguments<>) <= kMaxLaunchArgumentBytes);

// The bytes of a segment's memory in each of its tiles, which begin and end with runs where these
// are shorter; and the tiles of a run where they are longer.
struct DigestTiling {
  BRIGADE_HOST_DEVICE explicit DigestTiling(const DigestSegment& s)
      : run(s.run == 0 || s.run > s.size ? s.size : s.run),
        tile(run >= kDigestTile || run == 0 ? kDigestTile : kDigestTile / run * run),
        per_run(run >= kDigestTile ? CeilDiv(run, kDigestTile) : 0) {}

  BRIGADE_HOST_DEVICE int64_t Tiles(int64_t size) const {
    if (per_run == 0) return CeilDiv(size, tile);
    return size / run * per_run + CeilDiv(size % run, tile);
  }
  BRIGADE_HOST_DEVICE int64_t Begin(int64_t index) const {
    if (per_run == 0) return index * tile;
    return index / per_run * run + index % per_run * tile;
  }
  BRIGADE_HOST_DEVICE int64_t End(int64_t index, int64_t size) const {
    const int64_t begin = Begin(index);
    int64_t end = begin + tile;
    if (per_run != 0 && end > (index / per_run + 1) * run) end = (index / per_run + 1) * run;
    return end < size ? end : size;
  }

  int64_t run, tile, per_run;
};

BRIGADE_HOST_DEVICE inline int64_t DigestTiles(const DigestSegment& s) {
  return DigestTiling(s).Tiles(s.size);
}

// Those of the 16 bytes from `at` on, which counts from `data`, that are in [0, size).
BRIGADE_INLINE void LoadDigestEdge(const unsigned char* data, int64_t at, int64_t size,
                                   uint32_t* to) {
  for (int k = 0; k < kDigestGroupWords; ++k) {
    const int64_t begin = at + 4 * k;
    to[k] = 0;
    if (begin >= 0 && begin + 4 <= size) {
      LoadGroup<1>(reinterpret_cast<const uint32_t*>(data + begin), to + k);
    } else if (begin > -4 && begin < size) {
      for (int i = 0; i < 4; ++i) {
        if (begin + i >= 0 && begin + i < size) {
          to[k] |= static_cast<uint32_t>(data[begin + i]) << (8 * i);
        }
      }
    }
  }
}

// Adds `word` times a constant power.
template <int kExponent>
BRIGADE_INLINE void AddDigestWord(uint32_t word, uint64_t* sums) {
  constexpr uint64_t kFirst = DigestPower(DigestBase(0), kExponent);
  constexpr uint64_t kSecond = DigestPower(DigestBase(1), kExponent);
  sums[0] += word * kFirst;
  sums[1] += word * kSecond;
}

template <int kGroup>
BRIGADE_INLINE void AddDigestGroups(const uint32_t* words, uint64_t* sums) {
  if constexpr (kGroup < kDigestGroups) {
    AddDigestWord<kGroup * kDigestRow + 0>(words[0], sums);
    AddDigestWord<kGroup * kDigestRow + 1>(words[1], sums);
    AddDigestWord<kGroup * kDigestRow + 2>(words[2], sums);
    AddDigestWord<kGroup * kDigestRow + 3>(words[3], sums);
    AddDigestGroups<kGroup + 1>(words + kDigestGroupWords, sums);
  }
}

// Adds thread `thread`'s part of a run whose words lie at words of the memory.
BRIGADE_INLINE void DigestAlignedRun(const DigestRun& run, int thread, uint64_t* sums) {
  constexpr uint64_t kChunkPower[2] = {DigestPower(DigestBase(0), kDigestChunk),
                                       DigestPower(DigestBase(1), kDigestChunk)};
  const auto shift =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(run.data) % uintptr_t{kSectorBytes});
  uint64_t acc[2] = {0, 0};
  for (int64_t chunk = CeilDiv(shift + run.size, 4 * kDigestChunk) - 1; chunk >= 0; --chunk) {
    const int64_t begin = 4 * chunk * kDigestChunk - shift;
    const int64_t at = begin + thread * 4 * kDigestGroupWords;
    alignas(16) uint32_t words[kDigestGroups * kDigestGroupWords];
    if (begin >= 0 && begin + 4 * kDigestChunk <= run.size) {
      for (int j = 0; j < kDigestGroups; ++j) {
        LoadGroup<kDigestGroupWords>(
            reinterpret_cast<const uint32_t*>(run.data + at + j * 4 * kDigestRow),
            words + j * kDigestGroupWords);
      }
    } else {
      for (int j = 0; j < kDigestGroups; ++j) {
        const int64_t group = at + j * 4 * kDigestRow;
        if (group >= 0 && group + 16 <= run.size) {
          LoadGroup<kDigestGroupWords>(reinterpret_cast<const uint32_t*>(run.data + group),
                                       words + j * kDigestGroupWords);
        } else {
          LoadDigestEdge(run.data, group, run.size, words + j * kDigestGroupWords);
        }
      }
    }
    acc[0] *= kChunkPower[0];
    acc[1] *= kChunkPower[1];
    AddDigestGroups<0>(words, acc);
  }
  // Word 0 of the first chunk, which may be before the run and before the tensor.
  const int64_t word = (run.first - shift) / 4;
  const auto exponent = static_cast<uint64_t>(word + thread * kDigestGroupWords);
  sums[0] += acc[0] * DigestPower(DigestBase(0), exponent);
  sums[1] += acc[1] * DigestPower(DigestBase(1), exponent);
}

// The same of a run whose words lie anywhere.
BRIGADE_INLINE void DigestOddRun(const DigestRun& run, int thread, uint64_t* sums) {
  constexpr uint64_t kWarpPower[2] = {DigestPower(DigestBase(0), kWarp),
                                      DigestPower(DigestBase(1), kWarp)};
  const int64_t first_word = run.first / 4;
  const int64_t words = (run.first + run.size - 1) / 4 - first_word + 1;
  uint64_t acc[2] = {0, 0};
  for (int64_t i = thread + (words - 1) / kWarp * kWarp; i >= 0; i -= kWarp) {
    const int64_t begin = 4 * (first_word + i) - run.first;
    uint32_t word = 0;
    for (int k = 0; k < 4; ++k) {
      if (begin + k >= 0 && begin + k < run.size) {
        word |= static_cast<uint32_t>(run.data[begin + k]) << (8 * k);
      }
    }
    acc[0] = acc[0] * kWarpPower[0] + word;
    acc[1] = acc[1] * kWarpPower[1] + word;
  }
  const auto exponent = static_cast<uint64_t>(first_word + thread);
  sums[0] += acc[0] * DigestPower(DigestBase(0), exponent);
  sums[1] += acc[1] * DigestPower(DigestBase(1), exponent);
}

// Adds thread `thread`'s part of a segment's tile to two sums.
BRIGADE_INLINE void DigestThread(const DigestSegment& segment, int64_t tile, int thread,
                                 uint64_t* sums) {
  const DigestTiling tiling(segment);
  ForEachDigestRun(
      segment, tiling.Begin(tile), tiling.End(tile, segment.size), [&](const DigestRun& run) {
        const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(run.data) % 4);
        if (address == run.first % 4) {
          DigestAlignedRun(run, thread, sums);
        } else {
          DigestOddRun(run, thread, sums);
        }
      });
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DIGEST_DIGEST_TILE_H_
