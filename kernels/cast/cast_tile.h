#ifndef BRIGADE_KERNELS_CAST_CAST_TILE_H_
#define BRIGADE_KERNELS_CAST_CAST_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernel calls it, and tests run it on the host.

#include <cstdint>

#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"

namespace brigade::kernels {

// Segments of 24 bytes, with their first tiles, that fill a launch's arguments.
inline constexpr int kMaxCastSegments = 1000;

template <int kCapacity = kMaxCastSegments>
struct CastArguments {
  // Null means 1.
  const float* scale;
  SegmentBatch<CastSegment, kCapacity> batch;
};
static_assert(sizeof(CastArguments<>) <= kMaxLaunchArgumentBytes);

// The elements of a thread: two groups, so 8, or 16 where both types have 16 bits.
template <typename Source, typename Target>
inline constexpr int kCastGroup = GroupSize(sizeof(Source) < sizeof(Target) ? sizeof(Target)
                                                                            : sizeof(Source));
template <typename Source, typename Target>
inline constexpr int kCastPack = 2 * kCastGroup<Source, Target>;

template <typename Source, typename Target>
BRIGADE_HOST_DEVICE auto CastLayout(const CastSegment& s) {
  const auto* const source = static_cast<const Source*>(s.source);
  const auto* const target = static_cast<const Target*>(s.target);
  constexpr bool kWidens = sizeof(Source) < sizeof(Target);
  using Layout = PackLayout<kCastGroup<Source, Target>, kCastPack<Source, Target>>;
  Layout layout = kWidens ? Layout(source) : Layout(target);
  layout.Add(source);
  layout.Add(target);
  return layout;
}

template <typename Source, typename Target, bool kAccumulate, int kCapacity>
BRIGADE_INLINE void CastThread(const CastArguments<kCapacity>& arguments, int64_t tile,
                               int thread) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(tile);
  const CastSegment& s = batch.segments[index];
  const float scale = arguments.scale == nullptr ? 1.0f : *arguments.scale;
  const Source* const source = static_cast<const Source*>(s.source);
  Target* const target = static_cast<Target*>(s.target);

  const auto cast = [&](const auto& chunk) {
    constexpr int kPack = kCastPack<Source, Target>;
    const Pack<Source, kPack> x = chunk.Load(source);
    Pack<Target, kPack> y = {};
    if constexpr (kAccumulate) y = chunk.Load(static_cast<const Target*>(target));
    for (int j = 0; j < kPack; ++j) {
      y.values[j] = CastElement<kAccumulate>(x.values[j], y.values[j], scale);
    }
    chunk.Store(y, target);
  };
  CastLayout<Source, Target>(s).ForThread(s.size, tile - batch.first_tile[index], thread, cast);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_TILE_H_
