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

// 1300 segments of 16 bytes, with their first tiles, fill a launch's arguments.
using FillBatch = SegmentBatch<FillSegment, 1300>;

struct FillArguments {
  FillPattern pattern;
  int64_t element_bytes;
  FillBatch batch;
};
static_assert(sizeof(FillArguments) <= kMaxLaunchArgumentBytes);

// Bytes from the last 16-byte boundary to the array's begin: the first store is cut short by them.
BRIGADE_HOST_DEVICE inline int64_t FillShift(const FillSegment& s) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(s.data) % 16);
}

BRIGADE_HOST_DEVICE inline int64_t FillTiles(const FillSegment& s, int64_t element_bytes) {
  return s.size == 0 ? 0 : CeilDiv(s.size * element_bytes + FillShift(s), kFillTileBytes);
}

BRIGADE_INLINE void FillThread(const FillArguments& arguments, int64_t tile, int thread) {
  const FillBatch& batch = arguments.batch;
  const int64_t index = batch.Find(tile);
  const FillSegment& s = batch.segments[index];
  const int64_t bytes = s.size * arguments.element_bytes;
  const int64_t begin = (tile - batch.first_tile[index]) * kFillTileBytes - FillShift(s);
  char* const data = static_cast<char*>(s.data);
  for (int store = 0; store < kFillStores; ++store) {
    const int64_t first = begin + (int64_t{store} * kTileThreads + thread) * 16;
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
