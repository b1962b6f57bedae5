#ifndef BRIGADE_KERNELS_CAST_CAST_TILE_H_
#define BRIGADE_KERNELS_CAST_CAST_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernel calls it, and tests run it on the host.

#include <cstdint>

#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"

namespace brigade::kernels {

// 1000 segments of 24 bytes, with their first tiles, fill a launch's arguments.
using CastBatch = SegmentBatch<CastSegment, 1000>;

struct CastArguments {
  // Null means 1.
  const float* scale;
  CastBatch batch;
};
static_assert(sizeof(CastArguments) <= kMaxLaunchArgumentBytes);

template <typename Source, typename Target>
BRIGADE_HOST_DEVICE PackLayout CastLayout(const CastSegment& s) {
  PackLayoutBuilder builder;
  builder.Add(static_cast<const Source*>(s.source));
  builder.Add(static_cast<const Target*>(s.target));
  return builder.Build();
}

template <typename Source, typename Target, bool kAccumulate>
BRIGADE_INLINE void CastThread(const CastArguments& arguments, int64_t tile, int thread) {
  const CastBatch& batch = arguments.batch;
  const int64_t index = batch.Find(tile);
  const CastSegment& s = batch.segments[index];
  const float scale = arguments.scale == nullptr ? 1.0f : *arguments.scale;
  const Source* const source = static_cast<const Source*>(s.source);
  Target* const target = static_cast<Target*>(s.target);

  const auto pack = [&](int64_t i) {
    const Pack8<Source> x = LoadPack8(source + i);
    Pack8<Target> y = {};
    if constexpr (kAccumulate) y = LoadPack8(target + i);
    for (int j = 0; j < kPackSize; ++j) {
      y.values[j] = CastElement<kAccumulate>(x.values[j], y.values[j], scale);
    }
    StorePack8(y, target + i);
  };
  const auto single = [&](int64_t i) {
    Target y = {};
    if constexpr (kAccumulate) y = target[i];
    target[i] = CastElement<kAccumulate>(source[i], y, scale);
  };
  ForThread(s.size, CastLayout<Source, Target>(s), tile - batch.first_tile[index], thread, pack,
            single);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_TILE_H_
