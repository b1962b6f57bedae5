#ifndef BRIGADE_KERNELS_INTERNAL_SEGMENTS_H_
#define BRIGADE_KERNELS_INTERNAL_SEGMENTS_H_

// How a list of segments becomes equal pieces of work: tiles. Plain C++ for the CPU and for the
// GPU; the host runs all of it in tests.
//
// Each segment is cut into tiles of its own; an empty one has none. Tiles are numbered through the
// list, and a worker finds the segment of its tile by binary search in the segments' first tiles.
// All counts are 64-bit.

#include <cstdint>
#include <type_traits>

#include "brigade/precision/host_device.h"

namespace brigade::kernels {

// CUDA's limit from compute capability 7.0 on; it counts the padding at a struct's end.
inline constexpr int64_t kMaxLaunchArgumentBytes = 32764;

BRIGADE_HOST_DEVICE constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The last i in [0, count) with first_tile(i) <= tile; first_tile(0) must be <= tile. With empty
// segments left out of the list it is the segment that holds the tile. GPUs wait for each of the
// steps: how far one goes depends on `count` alone.
template <typename Index, typename FirstTile>
BRIGADE_HOST_DEVICE Index FindSegment(Index count, int64_t tile, const FirstTile& first_tile) {
  Index found = 0;
  while (count > 1) {
    const Index half = count / 2;
    if (first_tile(found + half) <= tile) found += half;
    count -= half;
  }
  return found;
}

// As many segments as fit into the arguments of one launch, with where their tiles begin.
template <typename Segment, int kCapacity>
struct SegmentBatch {
  static constexpr int kMaxSegments = kCapacity;

  // first_tile[count] is the number of tiles.
  int64_t first_tile[kCapacity + 1];
  Segment segments[kCapacity];
  int32_t count;

  BRIGADE_HOST_DEVICE int64_t tiles() const { return first_tile[count]; }
  BRIGADE_HOST_DEVICE int32_t Find(int64_t tile) const {
    return FindSegment(count, tile, [this](int32_t i) { return first_tile[i]; });
  }
};

// The segments of a launch whose arguments are small: a model's flat ranges, not its tensors.
inline constexpr int kFewSegments = 4;

// Calls run(std::integral_constant) for how many segments a launch of this list takes: `kMost`, or
// kFewSegments if those are enough, since each launch passes them all, used or not.
template <int kMost, typename Run>
auto WithCapacity(int64_t count, const Run& run) {
  return count <= kFewSegments ? run(std::integral_constant<int, kFewSegments>())
                               : run(std::integral_constant<int, kMost>());
}

// Cuts a list into batches: calls launch(first_tile_of_list) with `batch` filled, for each batch in
// order, until one does not return `ok`; returns the last result. tiles_of(segment) is the number
// of its tiles.
//
// A batch ends when it is full or when one more segment would take it past `max_tiles`, the largest
// grid; a single segment's tiles must fit into one grid.
template <typename Batch, typename Segment, typename TilesOf, typename Result, typename Launch>
Result ForEachBatch(const Segment* segments, int64_t count, int64_t max_tiles,
                    const TilesOf& tiles_of, Batch& batch, Result ok, const Launch& launch) {
  int64_t tiles_before = 0;
  int64_t i = 0;
  while (i < count) {
    batch.count = 0;
    batch.first_tile[0] = 0;
    for (; i < count && batch.count < Batch::kMaxSegments; ++i) {
      const int64_t tiles = tiles_of(segments[i]);
      if (tiles == 0) continue;
      if (batch.count > 0 && batch.tiles() + tiles > max_tiles) break;
      batch.segments[batch.count] = segments[i];
      batch.first_tile[batch.count + 1] = batch.tiles() + tiles;
      ++batch.count;
    }
    if (batch.count == 0) break;  // only empty segments were left
    const Result result = launch(tiles_before);
    if (result != ok) return result;
    tiles_before += batch.tiles();
  }
  return ok;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_SEGMENTS_H_
