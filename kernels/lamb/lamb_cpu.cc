// LAMB over a range on the CPU, in two passes: the first reads param, both moments and the gradient
// and writes the moments, 24 bytes an element beside the gradient; the second reads param and
// moments and writes param, 16 bytes, and the copy.

#include "brigade/kernels/lamb/lamb_cpu.h"

#include <algorithm>
#include <type_traits>

#include "brigade/kernels/cast/cast_elements.h"
#include "brigade/kernels/internal/halve_lanes.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

template <typename Grad>
StepError LambMomentsRange(const LambSegment& s, const LambParameters& parameters, int64_t begin,
                           int64_t end, LambSums* tiles) {
  const StepError error = FindErrorOfAnyStep<LambPolicy>(parameters, s.group);
  if (error != StepError::kNone || SkipsStep(parameters)) return error;
  const LambCoefficients coefficients = LambPolicy::MakeCoefficients(parameters, s.group);
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    const LambCoefficients c = coefficients;
    const Grad* const grad = static_cast<const Grad*>(s.grad);
    const float* const param = s.param;
    float* const first = s.m;
    float* const second = s.v;
    for (int64_t tile = begin; tile < end; tile += kLambTile) {
      const int64_t tile_end = std::min(end, tile + kLambTile);
      alignas(64) double of_param[kLambLanes] = {};
      alignas(64) double of_update[kLambLanes] = {};
      for (int64_t row = tile; row < tile_end; row += kLambLanes) {
        const int64_t size = std::min<int64_t>(kLambLanes, tile_end - row);
        // A copy of floats costs what clang compiles a quarter of its time.
        [[maybe_unused]] float wide[kLambLanes];
        const float* grads;
        if constexpr (std::is_same_v<Grad, float>) {
          grads = grad + row;
        } else {
          CastElements<Write::kReplace>(Lanes(), grad + row, wide, size, 1.0f);
          grads = wide;
        }
        BRIGADE_SIMD_LOOP_TO_DOUBLES
        for (int64_t l = 0; l < size; ++l) {
          const int64_t i = row + l;
          const float p = param[i];
          float m = first[i];
          float v = second[i];
          LambMoments(c, grads[l], m, v);
          first[i] = m;
          second[i] = v;
          of_param[l] = AddLambSquare(of_param[l], p);
          of_update[l] = AddLambSquare(of_update[l], LambUpdate(c, m, v, p));
        }
      }
      tiles[tile / kLambTile] = {Halve(of_param), Halve(of_update)};
    }
  });
  return StepError::kNone;
}

float LambTrustOf(const LambTensor& tensor, const LambParameters& parameters,
                  const LambSums* tiles) {
  double of_param[kLambTileLanes] = {}, of_update[kLambTileLanes] = {};
  for (int64_t t = 0; t < tensor.count; ++t) {
    const int64_t l = t % kLambTileLanes;
    const LambSums& sums = tiles[LambTileAt(tensor, t)];
    of_param[l] = precision::Add(of_param[l], sums.param);
    of_update[l] = precision::Add(of_update[l], sums.update);
  }
  return LambTrust(parameters.groups[tensor.group], {Halve(of_param), Halve(of_update)});
}

float LambTrustOf(const LambSegment& s, const LambParameters& parameters, const LambSums* tiles) {
  const int64_t count = (s.size + kLambTile - 1) / kLambTile;
  return LambTrustOf(LambTensor{0, count, 0, std::max<int64_t>(count, 1), 0, s.group}, parameters,
                     tiles);
}

template <typename Copy>
StepError LambParamRange(const LambSegment& s, const LambParameters& parameters, float trust,
                         int64_t begin, int64_t end) {
  const StepError error = FindErrorOfAnyStep<LambPolicy>(parameters, s.group);
  if (error != StepError::kNone || SkipsStep(parameters)) return error;
  const LambCoefficients coefficients = LambPolicy::MakeCoefficients(parameters, s.group);
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    const LambCoefficients c = coefficients;
    const float rate = precision::Mul(c.lr, trust);
    float* const param = s.param;
    const float* const m = s.m;
    const float* const v = s.v;
    // So short that the copy is made from the first-level cache.
    constexpr int64_t kBlock = 1024;
    for (int64_t from = begin; from < end; from += kBlock) {
      const int64_t to = std::min(end, from + kBlock);
      BRIGADE_SIMD_LOOP
      for (int64_t i = from; i < to; ++i) {
        param[i] = LambParam(rate, LambUpdate(c, m[i], v[i], param[i]), param[i]);
      }
      if constexpr (!std::is_same_v<Copy, NoCopy>) {
        CastElements<Write::kReplace>(Lanes(), param + from,
                                      static_cast<Copy*>(s.param_copy) + from, to - from, 1.0f);
      }
    }
  });
  return StepError::kNone;
}

#define BRIGADE_INSTANTIATE(T)                                                               \
  template StepError LambMomentsRange<T>(const LambSegment&, const LambParameters&, int64_t, \
                                         int64_t, LambSums*);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE
#define BRIGADE_INSTANTIATE(T)                                                                    \
  template StepError LambParamRange<T>(const LambSegment&, const LambParameters&, float, int64_t, \
                                       int64_t);
BRIGADE_INSTANTIATE(NoCopy)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
