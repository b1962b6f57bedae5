#ifndef BRIGADE_KERNELS_ADAM_ADAM_TILE_H_
#define BRIGADE_KERNELS_ADAM_ADAM_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernel calls it, and tests run it on the host.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/adam/adam_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/update_types.h"

namespace brigade::kernels {

// 460 segments of 56 bytes, with their first tiles and the groups' constants, fill a launch's arguments.
using AdamBatch = SegmentBatch<AdamSegment, 460>;

struct AdamArguments {
  AdamParameters parameters;
  AdamBatch batch;
};
static_assert(sizeof(AdamArguments) <= kMaxLaunchArgumentBytes);

template <typename Grad, typename Copy>
BRIGADE_HOST_DEVICE PackLayout AdamLayout(const AdamSegment& s) {
  PackLayoutBuilder builder;
  builder.Add(s.param);
  builder.Add(s.m);
  builder.Add(s.v);
  builder.Add(static_cast<const Grad*>(s.grad));
  if constexpr (!std::is_same_v<Copy, NoCopy>) builder.Add(static_cast<const Copy*>(s.param_copy));
  return builder.Build();
}

template <typename Grad, typename Copy, bool kL2>
BRIGADE_INLINE void AdamThread(const AdamArguments& arguments, int64_t tile, int thread) {
  if (arguments.parameters.state->skip != 0) return;
  const AdamBatch& batch = arguments.batch;
  const int64_t index = batch.Find(tile);
  const AdamSegment& s = batch.segments[index];
  const AdamCoefficients c = MakeAdamCoefficients(arguments.parameters, s.group);
  const Grad* const grad = static_cast<const Grad*>(s.grad);
  [[maybe_unused]] Copy* const copy = static_cast<Copy*>(s.param_copy);

  const auto pack = [&](int64_t i) {
    // All loads before the first use: 7 or 8 accesses of 16 bytes in flight per thread.
    const Pack8<Grad> g = LoadPack8(grad + i);
    Pack8<float> p = LoadPack8(s.param + i);
    Pack8<float> m = LoadPack8(s.m + i);
    Pack8<float> v = LoadPack8(s.v + i);
    for (int j = 0; j < kPackSize; ++j) {
      AdamElement<kL2>(c, static_cast<float>(g.values[j]), p.values[j], m.values[j], v.values[j]);
    }
    StorePack8(p, s.param + i);
    StorePack8(m, s.m + i);
    StorePack8(v, s.v + i);
    if constexpr (!std::is_same_v<Copy, NoCopy>) {
      Pack8<Copy> rounded;
      for (int j = 0; j < kPackSize; ++j) rounded.values[j] = Copy(p.values[j]);
      StorePack8(rounded, copy + i);
    }
  };
  const auto single = [&](int64_t i) {
    AdamElement<kL2>(c, static_cast<float>(grad[i]), s.param[i], s.m[i], s.v[i]);
    if constexpr (!std::is_same_v<Copy, NoCopy>) copy[i] = Copy(s.param[i]);
  };
  ForThread(s.size, AdamLayout<Grad, Copy>(s), tile - batch.first_tile[index], thread, pack,
            single);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM_ADAM_TILE_H_
