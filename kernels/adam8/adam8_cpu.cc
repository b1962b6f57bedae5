// Adam with moments of 8 bits over a range on the CPU: reads param, codes, scales and the gradient,
// writes param, codes, scales and the copy: 12 1/16 bytes of state per element, plus gradient and
// copy. The moments of two blocks in fp32, 4 KiB, stay in the first-level cache between passes.

#include "brigade/kernels/adam8/adam8_cpu.h"

#include <algorithm>
#include <type_traits>

#include "brigade/kernels/adam8/adam8_bytes.h"
#include "brigade/kernels/adam8/adam8_lanes.h"
#include "brigade/kernels/cast/cast_elements.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {
namespace {

// A block's moments after its update, and what makes codes of them.
struct UpdatedBlock {
  alignas(64) float m[kMomentBlock], v[kMomentBlock];
  MomentCoder m_coder, v_coder;
};

template <typename Element, typename Lanes, typename Codes, typename Grad, typename Copy>
BRIGADE_INLINE void UpdateBlock(const Adam8Segment& s, const AdamCoefficients& c, int64_t begin,
                                int64_t size, UpdatedBlock& block) {
  constexpr bool kHalfGrad = std::is_same_v<Grad, precision::Half>;
  constexpr bool kHalfCopy = std::is_same_v<Copy, precision::Half>;
  alignas(64) [[maybe_unused]] float converted[kHalfGrad ? kMomentBlock : 1];
  const int64_t index = begin / kMomentBlock;
  float* const m = block.m;
  float* const v = block.v;
  float* const param = s.param + begin;
  const Grad* const grad = static_cast<const Grad*>(s.grad) + begin;
  [[maybe_unused]] Copy* copy = nullptr;
  if constexpr (!std::is_same_v<Copy, NoCopy>) copy = static_cast<Copy*>(s.param_copy) + begin;
  if constexpr (kHalfGrad) CastElements<Write::kReplace>(Lanes(), grad, converted, size, 1.0f);
  DecodeMoments<MomentKind::kFirst>(Codes(), s.m + begin, s.m_scale[index], size, m);
  DecodeMoments<MomentKind::kSecond>(Codes(), s.v + begin, s.v_scale[index], size, v);
  int32_t largest_m = 0, largest_v = 0;
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < size; ++i) {
    float g;
    if constexpr (kHalfGrad) {
      g = converted[i];
    } else {
      g = static_cast<float>(grad[i]);
    }
    float p = param[i];
    float state[2] = {m[i], v[i]};
    Element::Update(c, g, p, state);
    param[i] = p;
    m[i] = state[0];
    v[i] = state[1];
    const int32_t magnitude_m = MomentMagnitude(m[i]), magnitude_v = MomentMagnitude(v[i]);
    largest_m = magnitude_m > largest_m ? magnitude_m : largest_m;
    largest_v = magnitude_v > largest_v ? magnitude_v : largest_v;
    if constexpr (!kHalfCopy && !std::is_same_v<Copy, NoCopy>) copy[i] = Copy(p);
  }
  if constexpr (kHalfCopy) CastElements<Write::kReplace>(Lanes(), param, copy, size, 1.0f);
  block.m_coder = MakeMomentCoder(largest_m);
  block.v_coder = MakeMomentCoder(largest_v);
}

template <typename Codes>
BRIGADE_INLINE void StoreBlock(const Adam8Segment& s, int64_t begin, int64_t size,
                               const UpdatedBlock& block) {
  s.m_scale[begin / kMomentBlock] = block.m_coder.scale;
  s.v_scale[begin / kMomentBlock] = block.v_coder.scale;
  EncodeMoments<MomentKind::kFirst>(Codes(), block.m_coder, block.m, size, s.m + begin);
  EncodeMoments<MomentKind::kSecond>(Codes(), block.v_coder, block.v, size, s.v + begin);
}

}  // namespace

template <typename Grad, typename Copy>
StepError Adam8Range(const Adam8Segment& segment, const AdamParameters& parameters, int64_t begin,
                     int64_t end) {
  const StepError error = FindErrorOfAnyStep<Adam8Policy>(parameters, segment.group);
  if (error != StepError::kNone || SkipsStep(parameters)) return error;
  const AdamCoefficients coefficients = AdamPolicy::MakeCoefficients(parameters, segment.group);
  const auto update = [&](auto element) {
    RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
      using Lanes = LanesOf<decltype(simd)::kValue>;
      const AdamCoefficients c = coefficients;
      const auto blocks = [&](auto codes) BRIGADE_SIMD_BODY {
        // A block becomes codes after the update of the next one, with which a processor begins
        // while it waits for the scales: a tenth of the time in the first-level cache.
        UpdatedBlock updated[2];
        for (int64_t at = begin; at < end + kMomentBlock; at += kMomentBlock) {
          const int64_t index = at / kMomentBlock % 2;
          if (at < end) {
            UpdateBlock<decltype(element), Lanes, decltype(codes), Grad, Copy>(
                segment, c, at, std::min(kMomentBlock, end - at), updated[index]);
          }
          const int64_t before = at - kMomentBlock;
          if (before < begin) continue;
          StoreBlock<decltype(codes)>(segment, before, std::min(kMomentBlock, end - before),
                                      updated[1 - index]);
        }
      };
#ifdef __x86_64__
      if constexpr (std::is_same_v<Lanes, Avx512Lanes>) {
        if (SimdLooksUpBytes()) return blocks(Avx512Bytes());
      }
#endif
      blocks(Lanes());
    });
  };
  parameters.decoupled ? update(AdamElement<false>()) : update(AdamElement<true>());
  return StepError::kNone;
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                                          \
  template StepError Adam8Range<Grad, Copy>(const Adam8Segment&, const AdamParameters&, int64_t, \
                                            int64_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
