#ifndef BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_TILE_H_
#define BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernels call it, and tests run it on the host.
//
// A warp sums a tile of 8192 elements, in rows of 256. A row starts at a sector and is taken in
// groups of 16 bytes, those of the warp side by side, so that a thread holds the same 8 lanes of
// the canonical order in every row. Where a segment starts `shift` elements past a sector, a tile's
// first row begins `shift` elements before it and one more row ends it; what these rows hold of the
// neighbouring tiles is loaded and left out. So no address costs more than the edges of a segment.
//
// The lanes meet in shared memory, where they are added by halving. They may stay rotated by
// `shift`: a halving adds the lanes that are equal modulo a power of two, which a rotation keeps
// together, and addition commutes.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// The rows that are loaded before the first is added; untuned.
inline constexpr int kRowsAtOnce = 4;
// In a tile's first and last rows: 4 would not fit into 64 registers.
inline constexpr int kRowsOfEdge = 2;
// The lanes of a thread.
inline constexpr int kGradPack = kGradLanes / kWarp;

// Segments of 16 bytes, with their first tiles, that fill a launch's arguments.
inline constexpr int kMaxGradSegments = 1300;

template <int kCapacity = kMaxGradSegments>
struct GradArguments {
  // The sums of the tiles of the whole list.
  double* tile_sums;
  // The tiles of the list before this launch.
  int64_t tiles_before;
  SegmentBatch<GradSegment, kCapacity> batch;
};
static_assert(sizeof(GradArguments<>) <= kMaxLaunchArgumentBytes);

BRIGADE_HOST_DEVICE inline int64_t GradTiles(const GradSegment& s) {
  return CeilDiv(s.size, kGradTile);
}

// One tile of a segment.
template <typename Grad>
struct GradTile {
  // A group fills 16 bytes.
  static constexpr int kGroup = GroupSize(sizeof(Grad));

  const Grad* grad;
  // The elements of the tile, at most kGradTile.
  int size;
  // The elements from a sector's begin to the tile's.
  int shift;
  // The elements of the segment before the tile's begin, and from there on: at most a group more
  // than the tile's.
  int before, left;

  template <typename Batch>
  BRIGADE_HOST_DEVICE static GradTile Find(const Batch& batch, int64_t tile) {
    const int64_t index = batch.Find(tile);
    const GradSegment& s = batch.segments[index];
    const int64_t begin = (tile - batch.first_tile[index]) * kGradTile;
    const Grad* const grad = static_cast<const Grad*>(s.grad) + begin;
    const int64_t left = s.size - begin;
    const auto at_most = [](int64_t n, int64_t most) {
      return static_cast<int>(n < most ? n : most);
    };
    const auto past = reinterpret_cast<uintptr_t>(grad) % kSectorBytes;
    return {grad, at_most(left, kGradTile), static_cast<int>(past / sizeof(Grad)),
            at_most(begin, kGroup), at_most(left, kGradTile + kGroup)};
  }

  // The group from element i on; 0 for elements outside of the tile, whose squares change nothing.
  BRIGADE_INLINE void LoadGroupOfEdge(int i, Grad* to) const {
    if (i >= -before && i + kGroup <= left && i + kGroup > 0 && i < size) {
      LoadGroup<kGroup>(grad + i, to);
      for (int j = 0; j < kGroup; ++j) {
        if (!Has(i + j)) to[j] = Grad();
      }
    } else {
      for (int j = 0; j < kGroup; ++j) to[j] = Has(i + j) ? grad[i + j] : Grad();
    }
  }

 private:
  BRIGADE_INLINE bool Has(int i) const {
    return static_cast<unsigned>(i) < static_cast<unsigned>(size);
  }
};

// Where a lane lies in shared memory, of kLanePlaces doubles: with one left out for every 16, no
// bank is met twice, neither where a thread writes the lanes that it holds nor where it reads every
// 32nd.
BRIGADE_HOST_DEVICE constexpr int LanePlace(int lane) { return lane + lane / 16; }
inline constexpr int kLanePlaces = LanePlace(kGradLanes);

// Adds thread `thread`'s part of the tile to the lanes that it holds.
template <typename Grad>
BRIGADE_INLINE void SumLanes(const GradTile<Grad>& tile, int thread, double* lanes) {
  constexpr int kGroup = GradTile<Grad>::kGroup;
  double sums[kGradPack] = {};
  // Adds `rows` rows from element `row` on, all of them loaded before the first is added.
  const auto add_rows = [&](auto rows, int row, const auto& load) {
    constexpr int kRows = decltype(rows)::value;
    Pack<Grad, kGradPack> packs[kRows];
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kGradPack; j += kGroup) {
        load(row + r * kGradLanes + j * kWarp + thread * kGroup, packs[r].values + j);
      }
    }
    for (const auto& pack : packs) {
      for (int j = 0; j < kGradPack; ++j) {
        sums[j] = AddSquare(sums[j], static_cast<float>(pack.values[j]));
      }
    }
  };
  for (int row = -tile.shift; row < tile.size;) {
    if (row >= 0 && row + kRowsAtOnce * kGradLanes <= tile.size) {
      add_rows(std::integral_constant<int, kRowsAtOnce>(), row,
               [&](int i, Grad* to) { LoadGroup<kGroup>(tile.grad + i, to); });
      row += kRowsAtOnce * kGradLanes;
    } else {
      add_rows(std::integral_constant<int, kRowsOfEdge>(), row,
               [&](int i, Grad* to) { tile.LoadGroupOfEdge(i, to); });
      row += kRowsOfEdge * kGradLanes;
    }
  }
  for (int j = 0; j < kGradPack; ++j) {
    const int lane = j / kGroup * kGroup * kWarp + thread * kGroup + j % kGroup;
    lanes[LanePlace(lane)] = sums[j];
  }
}

// The first halvings, until there is a lane for each thread of a warp: that of this thread.
BRIGADE_INLINE double HalveToWarp(const double* lanes, int thread) {
  double sums[kGradPack];
  for (int j = 0; j < kGradPack; ++j) sums[j] = lanes[LanePlace(thread + j * kWarp)];
  for (int half = kGradPack / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] = precision::Add(sums[j], sums[j + half]);
  }
  return sums[0];
}

// Whether this thread's share of the tile holds an overflow: asked only if the sum says it may.
template <typename Grad>
BRIGADE_INLINE bool FindOverflow(const GradTile<Grad>& tile, int thread) {
  bool found = false;
  for (int i = thread; i < tile.size; i += kWarp) {
    found = found || Overflows(static_cast<float>(tile.grad[i]));
  }
  return found;
}

// The sum of every 256th of the tile sums, from `lane` on, with kAtOnce loads in flight before the
// additions, which wait for one another.
template <int kAtOnce>
BRIGADE_INLINE double SumOfTileSums(const double* tile_sums, int64_t tiles, int lane) {
  double sum = 0.0;
  for (int64_t i = lane; i < tiles; i += kAtOnce * kGradLanes) {
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
