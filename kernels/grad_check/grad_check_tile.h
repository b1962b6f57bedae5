#ifndef BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_TILE_H_
#define BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernels call it, and tests run it on the host.
//
// A warp sums a tile of 8192 elements. A thread loads packs of 8 at 16-byte boundaries: where a
// segment starts `shift` elements past one, thread t's packs hold the lanes 8 t - shift to 8 t -
// shift + 7 (mod 256) of the canonical order, the same ones in every row. So no address costs more
// than its edges; thread 0, whose pack begins before the tile, makes up for it with one more row
// and takes its last rows element by element.
//
// The lanes meet in shared memory, where they are added by halving. They may stay rotated by
// `shift`: a halving adds the lanes that are equal modulo a power of two, which a rotation keeps
// together, and addition commutes.

#include <cstdint>

#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

inline constexpr int kWarp = 32;
// The elements that a warp takes at once.
inline constexpr int kGradRow = kWarp * kPackSize;
// The loads in flight before the first use; untuned.
inline constexpr int kRowsAtOnce = 4;
static_assert(kGradRow == kGradLanes);

// 1300 segments of 16 bytes, with their first tiles, fill a launch's arguments.
using GradBatch = SegmentBatch<GradSegment, 1300>;

struct GradArguments {
  // The sums of the tiles of the whole list.
  double* tile_sums;
  // The tiles of the list before this launch.
  int64_t tiles_before;
  GradBatch batch;
};
static_assert(sizeof(GradArguments) <= kMaxLaunchArgumentBytes);

BRIGADE_HOST_DEVICE inline int64_t GradTiles(const GradSegment& s) {
  return CeilDiv(s.size, kGradTile);
}

// One tile of a segment.
template <typename Grad>
struct GradTile {
  const Grad* grad;
  // The elements of the tile, at most kGradTile.
  int64_t size;
  // The elements from a 16-byte boundary to the tile's begin.
  int64_t shift;

  BRIGADE_HOST_DEVICE static GradTile Find(const GradBatch& batch, int64_t tile) {
    const int64_t index = batch.Find(tile);
    const GradSegment& s = batch.segments[index];
    const int64_t begin = (tile - batch.first_tile[index]) * kGradTile;
    const Grad* const grad = static_cast<const Grad*>(s.grad) + begin;
    const int64_t left = s.size - begin;
    return {grad, left < kGradTile ? left : kGradTile, ElementsPastBoundary<sizeof(Grad)>(grad)};
  }
};

// Adds thread `thread`'s part of the tile to the lanes that it holds.
template <typename Grad>
BRIGADE_INLINE void SumLanes(const GradTile<Grad>& tile, int thread, double* lanes) {
  double sums[kPackSize] = {};
  const auto add = [&](const Pack8<Grad>& pack) {
    for (int j = 0; j < kPackSize; ++j) {
      sums[j] = AddSquare(sums[j], static_cast<float>(pack.values[j]));
    }
  };
  // The element of the tile where this thread's pack of row 0 begins.
  int64_t first = int64_t{thread} * kPackSize - tile.shift;
  const int64_t rows = kGradTile / kGradRow + 1;
  for (int64_t row = 0; row < rows;) {
    if (first >= 0 && first + (kRowsAtOnce - 1) * kGradRow + kPackSize <= tile.size) {
      Pack8<Grad> packs[kRowsAtOnce];
      for (int r = 0; r < kRowsAtOnce; ++r) packs[r] = LoadPack8(tile.grad + first + r * kGradRow);
      for (int r = 0; r < kRowsAtOnce; ++r) add(packs[r]);
      first += kRowsAtOnce * kGradRow;
      row += kRowsAtOnce;
      continue;
    }
    for (int j = 0; j < kPackSize; ++j) {
      const int64_t i = first + j;
      if (i >= 0 && i < tile.size) {
        sums[j] = AddSquare(sums[j], static_cast<float>(tile.grad[i]));
      }
    }
    first += kGradRow;
    ++row;
  }
  for (int j = 0; j < kPackSize; ++j) lanes[thread * kPackSize + j] = sums[j];
}

// One halving: lane j gets lane j + half. The threads meet before and after.
BRIGADE_INLINE void HalveLanes(double* lanes, int half, int thread, int threads) {
  for (int j = thread; j < half; j += threads) lanes[j] = precision::Add(lanes[j], lanes[j + half]);
}

// Whether this thread's share of the tile holds an overflow: asked only if the sum says it may.
template <typename Grad>
BRIGADE_INLINE bool FindOverflow(const GradTile<Grad>& tile, int thread) {
  bool found = false;
  for (int64_t i = thread; i < tile.size; i += kWarp) {
    found = found || Overflows(static_cast<float>(tile.grad[i]));
  }
  return found;
}

// Thread `thread`'s part of the sum of all tile sums: its lane.
BRIGADE_INLINE double SumOfTileSums(const double* tile_sums, int64_t tiles, int thread) {
  constexpr int kAtOnce = 8;  // loads in flight before the additions, which wait for one another
  double sum = 0.0;
  for (int64_t i = thread; i < tiles; i += kAtOnce * kGradLanes) {
    double x[kAtOnce];
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t at = i + int64_t{j} * kGradLanes;
      x[j] = at < tiles ? tile_sums[at] : 0.0;  // sums are not negative: + 0 changes no bit
    }
    for (int j = 0; j < kAtOnce; ++j) sum = precision::Add(sum, x[j]);
  }
  return sum;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_TILE_H_
