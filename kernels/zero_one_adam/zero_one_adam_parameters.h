#ifndef BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_PARAMETERS_H_
#define BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_PARAMETERS_H_

// What CountRates and its launcher (zero_one_adam_cuda.h) take, from hyper-parameters, in plain
// C++. On the host.

#include <cstdint>

#include "brigade/kernels/adam/adam_parameters.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_math.h"

namespace brigade::kernels {

// ZeroOneRates::betas of these groups: betas[2 * count], which then goes to device memory.
inline void FillZeroOneBetas(const AdamGroup* groups, int64_t count, float* betas) {
  for (int64_t i = 0; i < count; ++i) {
    betas[i] = static_cast<float>(groups[i].beta1);
    betas[count + i] = static_cast<float>(1.0 - groups[i].beta1);
  }
}

// A call, but not kSave, in a step whose numbers the host knows: betas [2 * groups], numbers
// [groups] and meeting [groups] are all of it that is in device memory. For up to kMaxOneStepGroups
// groups: with more, without rates, or a step below 1, CountRates and its launcher refuse it.
inline ZeroOneRates MakeZeroOneRates(ZeroOneCall call, int32_t groups, const OneStep& step,
                                     const float* betas, ZeroOneNumbers* numbers,
                                     GroupStep* meeting) {
  if (groups > kMaxOneStepGroups || step.lr == nullptr) return {};
  ZeroOneRates rates = {call, groups, nullptr, nullptr, betas, numbers, meeting};
  rates.step = step.step;
  rates.grad_multiplier = step.grad_multiplier;
  for (int32_t i = 0; i < groups; ++i) rates.lr[i] = step.lr[i];
  return rates;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_PARAMETERS_H_
