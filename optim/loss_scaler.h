#ifndef BRIGADE_OPTIM_LOSS_SCALER_H_
#define BRIGADE_OPTIM_LOSS_SCALER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/kernels/step_control/step_control.h"

namespace brigade::optim {

// How the loss is scaled, with the names of DeepSpeed's fp16 section. The state (scale, hysteresis)
// is a StepController's, in device memory. The default is none: the scale stays 1.
struct LossScaler {
  // The scale; 0: dynamic, and then the other fields say how.
  float loss_scale = 1.0f;
  int initial_scale_power = 16;
  int64_t loss_scale_window = 1000;
  int32_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  float min_loss_scale = 1.0f;
  float max_loss_scale = 0x1p126f;
  kernels::AtMinimum at_minimum = kernels::AtMinimum::kError;
  // Steps whose gradients are not finite are skipped. fp16 needs it; bf16 may do without.
  bool check_overflow = true;

  static LossScaler Dynamic() { return {.loss_scale = 0.0f}; }

  bool dynamic() const { return loss_scale == 0.0f; }
  kernels::LossScaleOptions ToKernelOptions() const;
};

// InvalidArgument naming field and value.
absl::Status Validate(const LossScaler& scaler);

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_LOSS_SCALER_H_
