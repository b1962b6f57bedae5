// The passes of 1-bit LAMB over a range on the CPU. An element: Send reads the momentum and the
// gradient and writes 4 bytes, Receive reads and writes 4, Moments reads 20 and writes 8, Freeze
// reads 8 and writes 4.

#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cpu.h"

#include <algorithm>

#include "brigade/kernels/internal/halve_lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

void OneBitLambFreezeRange(const OneBitLambSegment& s, int64_t begin, int64_t end,
                           OneBitLambSums* sums) {
  RunSimd([&]() BRIGADE_SIMD_BODY {
    for (int64_t tile = begin; tile < end; tile += kLambTile) {
      const int64_t tile_end = std::min(end, tile + kLambTile);
      alignas(64) double lanes[kLambLanes] = {};
      for (int64_t row = tile; row < tile_end; row += kLambLanes) {
        const int64_t size = std::min<int64_t>(kLambLanes, tile_end - row);
        BRIGADE_SIMD_LOOP
        for (int64_t l = 0; l < size; ++l) {
          s.fresh[row + l] = s.v[row + l];
          lanes[l] = AddLambSquare(lanes[l], s.m[row + l]);
        }
      }
      sums[s.first_tile + tile / kLambTile] = {0.0, Halve(lanes), 0.0};
    }
  });
}

template <typename Grad>
StepError OneBitLambSendRange(const OneBitLambMessage& s, const LambParameters& parameters,
                              float scale, int64_t begin, int64_t end) {
  const StepError error = FindErrorOfAnyStep<LambPolicy>(parameters, s.group);
  if (error != StepError::kNone) return error;
  const LambCoefficients coefficients = LambPolicy::MakeCoefficients(parameters, s.group);
  RunSimd([&]() BRIGADE_SIMD_BODY {
    const LambCoefficients c = coefficients;
    const Grad* const grad = static_cast<const Grad*>(s.grad);
    BRIGADE_SIMD_LOOP
    for (int64_t i = begin; i < end; ++i) {
      s.message[i] = OneBitLambSent(c, static_cast<float>(grad[i]), s.m[i], scale);
    }
  });
  return StepError::kNone;
}

void OneBitLambReceiveRange(const OneBitLambMessage& s, float scale, int64_t begin, int64_t end) {
  RunSimd([&]() BRIGADE_SIMD_BODY {
    BRIGADE_SIMD_LOOP
    for (int64_t i = begin; i < end; ++i) s.message[i] = precision::Div(s.message[i], scale);
  });
}

StepError OneBitLambMomentsRange(const OneBitLambSegment& s, const LambParameters& parameters,
                                 int64_t begin, int64_t end, OneBitLambSums* sums) {
  const StepError error = FindErrorOfAnyStep<LambPolicy>(parameters, s.group);
  if (error != StepError::kNone || SkipsStep(parameters)) return error;
  const LambCoefficients coefficients = LambPolicy::MakeCoefficients(parameters, s.group);
  RunSimd([&]() BRIGADE_SIMD_BODY {
    const LambCoefficients c = coefficients;
    for (int64_t tile = begin; tile < end; tile += kLambTile) {
      const int64_t tile_end = std::min(end, tile + kLambTile);
      alignas(64) double directions[kLambLanes] = {};
      alignas(64) double updates[kLambLanes] = {};
      alignas(64) double quotients[kLambLanes] = {};
      for (int64_t row = tile; row < tile_end; row += kLambLanes) {
        const int64_t size = std::min<int64_t>(kLambLanes, tile_end - row);
        BRIGADE_SIMD_LOOP_TO_DOUBLES
        for (int64_t l = 0; l < size; ++l) {
          const int64_t i = row + l;
          const float m = s.mean[i];
          float fresh = s.fresh[i];
          const OneBitLambElement e = OneBitLambMoment(c, m, s.m[i], s.v[i], s.param[i], fresh);
          s.m[i] = m;
          s.fresh[i] = fresh;
          directions[l] = AddLambSquare(directions[l], e.direction);
          updates[l] = AddLambSquare(updates[l], e.update);
          quotients[l] = OneBitLambGreater(quotients[l], e.quotient);
        }
      }
      double quotient = 0.0;
      for (const double each : quotients) quotient = OneBitLambGreater(quotient, each);
      sums[s.first_tile + tile / kLambTile] = {Halve(directions), Halve(updates), quotient};
    }
  });
  return StepError::kNone;
}

OneBitLambSums OneBitLambSumsOf(const LambTensor& tensor, const OneBitLambSums* sums) {
  double directions[kLambTileLanes] = {}, updates[kLambTileLanes] = {};
  double quotient = 0.0;
  for (int64_t t = 0; t < tensor.count; ++t) {
    const int64_t l = t % kLambTileLanes;
    const OneBitLambSums& of_tile = sums[LambTileAt(tensor, t)];
    directions[l] = precision::Add(directions[l], of_tile.direction);
    updates[l] = precision::Add(updates[l], of_tile.update);
    quotient = OneBitLambGreater(quotient, of_tile.quotient);
  }
  return {Halve(directions), Halve(updates), quotient};
}

double OneBitLambRootMeanSquare(const LambTensor& tensor, int64_t size,
                                const OneBitLambSums* sums) {
  if (size == 0) return 0.0;
  const double sum = OneBitLambSumsOf(tensor, sums).update;
  return precision::Sqrt(precision::Div(sum, static_cast<double>(size)));
}

#define BRIGADE_INSTANTIATE(T)                                                               \
  template StepError OneBitLambSendRange<T>(const OneBitLambMessage&, const LambParameters&, \
                                            float, int64_t, int64_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
