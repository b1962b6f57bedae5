#ifndef BRIGADE_KERNELS_INTERNAL_CPU_LIST_H_
#define BRIGADE_KERNELS_INTERNAL_CPU_LIST_H_

// How the CPU walks a list of segments with several threads.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/nontemporal_store.h"

namespace brigade::kernels {

// A segment and where its tiles begin in the list; what a CPU stream's queue holds.
template <typename Segment>
struct PlannedSegment {
  Segment segment;
  int64_t first_tile;
};

// In elements; small enough that odd sizes split evenly.
inline constexpr int64_t kCpuTile = 4096;

// The non-empty segments with their tiles of `tile_size` elements. Valid until this thread's next
// call for the same Segment; steady state allocates nothing.
template <typename Segment>
absl::Span<const PlannedSegment<Segment>> PlanSegments(absl::Span<const Segment> segments,
                                                       int64_t tile_size) {
  thread_local std::vector<PlannedSegment<Segment>> plan;
  plan.clear();
  int64_t tiles = 0;
  for (const Segment& segment : segments) {
    if (segment.size == 0) continue;
    plan.push_back({segment, tiles});
    tiles += CeilDiv(segment.size, tile_size);
  }
  return plan;
}

template <typename Segment>
int64_t CountTiles(absl::Span<const PlannedSegment<Segment>> plan, int64_t tile_size) {
  if (plan.empty()) return 0;
  return plan.back().first_tile + CeilDiv(plan.back().segment.size, tile_size);
}

template <typename Segment>
int64_t CountElements(absl::Span<const PlannedSegment<Segment>> plan) {
  int64_t elements = 0;
  for (const PlannedSegment<Segment>& planned : plan) elements += planned.segment.size;
  return elements;
}

// Calls fn(segment, begin, end, first_tile) for ranges of elements that together cover the plan,
// each of whole tiles and as long as one worker's share allows; `first_tile` is the list's number
// of the range's first tile. What fn stores past the caches (nontemporal_store.h) is fenced.
template <typename Segment, typename Fn>
void ForEachRange(absl::Span<const PlannedSegment<Segment>> plan, int64_t tile_size,
                  device::ThreadPool& pool, const Fn& fn) {
  // Shares of up to 64 tiles (256 Ki elements): long enough to stream, and at least 8 a thread, so
  // that a thread that is held up costs little.
  const int64_t tiles = CountTiles(plan, tile_size);
  const int64_t share = std::clamp<int64_t>(tiles / (8 * pool.threads()), 1, 64);
  pool.ParallelRanges(tiles, share, [&](int64_t begin_tile, int64_t end_tile) {
    const auto first_tile = [&](int64_t i) { return plan[i].first_tile; };
    int64_t i = FindSegment(static_cast<int64_t>(plan.size()), begin_tile, first_tile);
    for (int64_t tile = begin_tile; tile < end_tile; ++i) {
      const Segment& segment = plan[i].segment;
      const int64_t begin = (tile - plan[i].first_tile) * tile_size;
      const int64_t end = std::min(segment.size, (end_tile - plan[i].first_tile) * tile_size);
      fn(segment, begin, end, tile);
      tile = plan[i].first_tile + CeilDiv(end, tile_size);
    }
    NontemporalStoreFence();
  });
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_CPU_LIST_H_
