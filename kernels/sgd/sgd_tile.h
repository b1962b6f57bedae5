#ifndef BRIGADE_KERNELS_SGD_SGD_TILE_H_
#define BRIGADE_KERNELS_SGD_SGD_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernel calls it, and tests run it on the host.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/update_types.h"
#include "brigade/kernels/sgd/sgd_math.h"

namespace brigade::kernels {

// 540 segments of 48 bytes, with their first tiles and the groups' constants, fill a launch's arguments.
using SgdBatch = SegmentBatch<SgdSegment, 540>;

struct SgdArguments {
  SgdParameters parameters;
  SgdBatch batch;
};
static_assert(sizeof(SgdArguments) <= kMaxLaunchArgumentBytes);

template <typename Grad, typename Copy>
BRIGADE_HOST_DEVICE PackLayout SgdLayout(const SgdSegment& s) {
  PackLayoutBuilder builder;
  builder.Add(s.param);
  builder.Add(s.momentum);
  builder.Add(static_cast<const Grad*>(s.grad));
  if constexpr (!std::is_same_v<Copy, NoCopy>) builder.Add(static_cast<const Copy*>(s.param_copy));
  return builder.Build();
}

template <typename Grad, typename Copy>
BRIGADE_INLINE void SgdThread(const SgdArguments& arguments, int64_t tile, int thread) {
  if (arguments.parameters.state->skip != 0) return;
  const SgdBatch& batch = arguments.batch;
  const int64_t index = batch.Find(tile);
  const SgdSegment& s = batch.segments[index];
  const SgdCoefficients c = MakeSgdCoefficients(arguments.parameters, s.group);
  const Grad* const grad = static_cast<const Grad*>(s.grad);
  [[maybe_unused]] Copy* const copy = static_cast<Copy*>(s.param_copy);

  VisitSgdVariant(arguments.parameters.decoupled, s.momentum != nullptr, [&](auto variant) {
    using Variant = decltype(variant);
    const auto pack = [&](int64_t i) {
      // All loads before the first use.
      const Pack8<Grad> g = LoadPack8(grad + i);
      Pack8<float> p = LoadPack8(s.param + i);
      Pack8<float> m = {};
      if constexpr (Variant::kMomentum) m = LoadPack8(s.momentum + i);
      for (int j = 0; j < kPackSize; ++j) {
        SgdElement<Variant>(c, static_cast<float>(g.values[j]), p.values[j], m.values[j]);
      }
      StorePack8(p, s.param + i);
      if constexpr (Variant::kMomentum) StorePack8(m, s.momentum + i);
      if constexpr (!std::is_same_v<Copy, NoCopy>) {
        Pack8<Copy> rounded;
        for (int j = 0; j < kPackSize; ++j) rounded.values[j] = Copy(p.values[j]);
        StorePack8(rounded, copy + i);
      }
    };
    const auto single = [&](int64_t i) {
      float unused = 0.0f;
      float& m = Variant::kMomentum ? s.momentum[i] : unused;
      SgdElement<Variant>(c, static_cast<float>(grad[i]), s.param[i], m);
      if constexpr (!std::is_same_v<Copy, NoCopy>) copy[i] = Copy(s.param[i]);
    };
    ForThread(s.size, SgdLayout<Grad, Copy>(s), tile - batch.first_tile[index], thread, pack,
              single);
  });
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SGD_SGD_TILE_H_
