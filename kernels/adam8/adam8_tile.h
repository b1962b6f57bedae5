#ifndef BRIGADE_KERNELS_ADAM8_ADAM8_TILE_H_
#define BRIGADE_KERNELS_ADAM8_ADAM8_TILE_H_

// What one GPU thread does, in plain C++: 8 elements of a block, of which a warp has one.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/adam8/adam8_math.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

static_assert(kMomentBlock == kWarpBlock);

// The blocks of a warp, one after the other. Untuned.
inline constexpr int kAdam8Blocks = 2;

// Of a thread's moments.
BRIGADE_INLINE int32_t LargestMoment(const Pack<float>& moments) {
  int32_t largest = 0;
  for (int j = 0; j < kPackSize; ++j) {
    const int32_t magnitude = MomentMagnitude(moments.values[j]);
    largest = largest < magnitude ? magnitude : largest;
  }
  return largest;
}

// `warp_max` gives the largest value of its argument among the threads of the warp, and has their
// Barrier.
template <typename Element, typename Grad, typename Copy, typename Block, typename WarpMax>
BRIGADE_INLINE void UpdateAdam8Block(const Adam8Segment& s, const AdamCoefficients& c,
                                     int64_t block, int lane, const WarpMax& warp_max) {
  const auto chunk = Block::Elements(block, lane, s.size);
  // All loads before the first use.
  const auto g = chunk.Load(static_cast<const Grad*>(s.grad));
  auto p = chunk.Load(s.param);
  auto m_codes = chunk.Load(s.m);
  auto v_codes = chunk.Load(s.v);
  const float m_scale = s.m_scale[block], v_scale = s.v_scale[block];
  Pack<float> m = {}, v = {};
  for (int j = 0; j < kPackSize; ++j) {
    // What a segment does not have counts in no scale.
    if (!chunk.Has(j)) continue;
    float state[2] = {MomentOf<MomentKind::kFirst>(m_codes.values[j], m_scale),
                      MomentOf<MomentKind::kSecond>(v_codes.values[j], v_scale)};
    Element::Update(c, static_cast<float>(g.values[j]), p.values[j], state);
    m.values[j] = state[0];
    v.values[j] = state[1];
  }
  chunk.Store(p, s.param);
  if constexpr (!std::is_same_v<Copy, NoCopy>) {
    Pack<Copy> rounded;
    for (int j = 0; j < kPackSize; ++j) rounded.values[j] = Copy(p.values[j]);
    chunk.Store(rounded, static_cast<Copy*>(s.param_copy));
  }
  const MomentCoder m_coder = MakeMomentCoder(warp_max(LargestMoment(m)));
  const MomentCoder v_coder = MakeMomentCoder(warp_max(LargestMoment(v)));
  for (int j = 0; j < kPackSize; ++j) {
    m_codes.values[j] = MomentCode<MomentKind::kFirst>(m_coder, m.values[j]);
    v_codes.values[j] = MomentCode<MomentKind::kSecond>(v_coder, v.values[j]);
  }
  chunk.Store(m_codes, s.m);
  chunk.Store(v_codes, s.v);
  // All threads have read the scales.
  warp_max.Barrier();
  if (lane != 0) return;
  s.m_scale[block] = m_coder.scale;
  s.v_scale[block] = v_coder.scale;
}

template <typename Grad, typename Copy, typename Arguments, typename WarpMax>
BRIGADE_INLINE void Adam8Thread(const Arguments& arguments, int64_t tile, int thread,
                                const WarpMax& warp_max) {
  static_assert(sizeof(arguments) <= kMaxLaunchArgumentBytes);
  if (SkipsStep(arguments.parameters)) return;
  const int64_t index = arguments.batch.Find(tile);
  const Adam8Segment& s = arguments.batch.segments[index];
  // An error of the stream: the host cannot be asked, and doing nothing would pass for a step.
  if (FindStepError<Adam8Policy>(arguments.parameters, s.group) != StepError::kNone) Trap();
  const AdamCoefficients c = AdamPolicy::MakeCoefficients(arguments.parameters, s.group);
  bool whole = HasWholeGroups(s.param) && HasWholeGroups(s.m) && HasWholeGroups(s.v) &&
               HasWholeGroups(static_cast<const Grad*>(s.grad));
  if constexpr (!std::is_same_v<Copy, NoCopy>) {
    whole = whole && HasWholeGroups(static_cast<const Copy*>(s.param_copy));
  }
  const auto update = [&](auto element) {
    ForBlocks<kAdam8Blocks, 1>(whole, s.size, tile - arguments.batch.first_tile[index],
                               thread / kWarp, [&](auto kind, auto, int64_t block) {
                                 UpdateAdam8Block<decltype(element), Grad, Copy, decltype(kind)>(
                                     s, c, block, thread % kWarp, warp_max);
                               });
  };
  arguments.parameters.decoupled ? update(AdamElement<false>()) : update(AdamElement<true>());
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM8_ADAM8_TILE_H_
