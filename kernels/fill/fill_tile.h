#ifndef BRIGADE_KERNELS_FILL_FILL_TILE_H_
#define BRIGADE_KERNELS_FILL_FILL_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernel calls it, and tests run it on the host.

#include <cstdint>
#include <cstring>

#include "brigade/kernels/fill/fill_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"

namespace brigade::kernels {

// Bytes of a tile: four 16-byte stores for each thread of a block, those of a warp side by side.
// Untuned.
inline constexpr int64_t kFillStores = 4;
inline constexpr int64_t kFillTileBytes = kTileThreads * 16 * kFillStores;

// Segments of 16 bytes, with their first tiles, that fill a launch's arguments.
inline constexpr int kMaxFillSegments = 1300;

template <int kCapacity = kMaxFillSegments>
struct FillArguments {
  FillPattern pattern;
  int64_t element_bytes;
  SegmentBatch<FillSegment, kCapacity> batch;
};
static_assert(sizeof(FillArguments<>) <= kMaxLaunchArgumentBytes);

// Bytes from the last sector's begin to the array's: the first stores are cut short by them.
BRIGADE_HOST_DEVICE inline int64_t FillShift(const FillSegment& s) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(s.data) % kSectorBytes);
}

BRIGADE_HOST_DEVICE inline int64_t FillTiles(const FillSegment& s, int64_t element_bytes) {
  return s.size == 0 ? 0 : CeilDiv(s.size * element_bytes + FillShift(s), kFillTileBytes);
}

template <int kCapacity>
BRIGADE_INLINE void FillThread(const FillArguments<kCapacity>& arguments, int64_t tile,
                               int thread) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(tile);
  const FillSegment& s = batch.segments[index];
  const int64_t bytes = s.size * arguments.element_bytes;
  const int64_t begin = (tile - batch.first_tile[index]) * kFillTileBytes - FillShift(s);
  char* const data = static_cast<char*>(s.data);
  for (int store = 0; store < kFillStores; ++store) {
    const int64_t first = begin + (int64_t{store} * kTileThreads + thread) * 16;
    if (first >= bytes) return;
    if (first >= 0 && first + 16 <= bytes) {
      *reinterpret_cast<FillPattern*>(data + first) = arguments.pattern;
    } else {
      const char* const pattern = reinterpret_cast<const char*>(&arguments.pattern);
      for (int i = 0; i < 16; ++i) {
        if (first + i >= 0 && first + i < bytes) data[first + i] = pattern[i];
      }
    }
  }
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_FILL_FILL_TILE_H_
