#ifndef BRIGADE_ADAMW_DECISION_H_
#define BRIGADE_ADAMW_DECISION_H_

// What a step decides from values that are tensors on the device, for CUDA and the CPU alike: the
// rule of Brigade's StepControl, with a loss scale that PyTorch's GradScaler moves.

#include "bk_adam/precision/host_device.h"
#include "bk_adam/precision/rounding.h"

namespace brigade_adamw {

// Device memory, each of which may be null.
struct StepInputs {
  // [2] of grad_check: the norm of the scaled gradients, and 1 if they are not all finite.
  const double* check;
  // [1], by which the loss was multiplied.
  const float* grad_scale;
  // [1], not 0 if the step is to change nothing.
  const float* found_inf;
  // Infinity: no clipping.
  double max_norm;
  bool maximize;
};

struct Decision {
  // The factor on the gradients, which unscales and clips them, and turns them for a maximum.
  float multiplier;
  bool skip;
};

BK_ADAM_INLINE Decision Decide(const StepInputs& inputs) {
  using bk_adam::precision::Add;
  using bk_adam::precision::Div;
  Decision decision;
  decision.skip = (inputs.check != nullptr && inputs.check[1] != 0.0) ||
                  (inputs.found_inf != nullptr && *inputs.found_inf != 0.0f);
  const double divisor = inputs.grad_scale != nullptr ? *inputs.grad_scale : 1.0;
  double clip = 1.0;
  if (inputs.check != nullptr) {
    const double ratio = Div(inputs.max_norm, Add(Div(inputs.check[0], divisor), 1e-6));
    clip = ratio < 1.0 ? ratio : 1.0;
  }
  const float multiplier = static_cast<float>(Div(clip, divisor));
  decision.multiplier = inputs.maximize ? -multiplier : multiplier;
  return decision;
}

}  // namespace brigade_adamw

#endif  // BRIGADE_ADAMW_DECISION_H_
