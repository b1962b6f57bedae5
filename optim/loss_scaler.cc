#include "brigade/optim/loss_scaler.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/value_range.h"

namespace brigade::optim {
namespace {

constexpr char kName[] = "loss_scaler";
// What kernels/step_control takes.
constexpr kernels::ValueRange kScale = {0x1p-60, 0x1p126, "in [2^-60, 2^126]"};
constexpr kernels::ValueRange kFromOne = {1.0, 0x1p62, "1 or more"};

absl::Status Check(const char* field, double value, kernels::ValueRange range) {
  return kernels::CheckInRange(kName, field, -1, value, range);
}

}  // namespace

kernels::LossScaleOptions LossScaler::ToKernelOptions() const {
  kernels::LossScaleOptions options;
  options.dynamic = dynamic();
  options.initial_scale = dynamic() ? std::ldexp(1.0f, initial_scale_power) : loss_scale;
  options.min_scale = min_loss_scale;
  options.max_scale = max_loss_scale;
  options.window = loss_scale_window;
  options.hysteresis = hysteresis;
  options.consecutive_hysteresis = consecutive_hysteresis;
  options.at_minimum = at_minimum;
  return options;
}

absl::Status Validate(const LossScaler& scaler) {
  BRIGADE_RETURN_IF_ERROR(Check("min_loss_scale", scaler.min_loss_scale, kScale));
  BRIGADE_RETURN_IF_ERROR(Check("max_loss_scale", scaler.max_loss_scale,
                                {scaler.min_loss_scale, kScale.high, "min_loss_scale to 2^126"}));
  BRIGADE_RETURN_IF_ERROR(
      Check("loss_scale_window", static_cast<double>(scaler.loss_scale_window), kFromOne));
  BRIGADE_RETURN_IF_ERROR(Check("hysteresis", scaler.hysteresis, kFromOne));
  if (scaler.at_minimum != kernels::AtMinimum::kError &&
      scaler.at_minimum != kernels::AtMinimum::kClamp) {
    return absl::InvalidArgumentError(absl::StrCat(kName, ": at_minimum is ",
                                                   static_cast<int>(scaler.at_minimum),
                                                   ", must be kError or kClamp"));
  }
  if (!scaler.dynamic()) {
    return Check("loss_scale", scaler.loss_scale,
                 {kScale.low, kScale.high, "0 (dynamic) or in [2^-60, 2^126]"});
  }
  if (!scaler.check_overflow) {
    return absl::InvalidArgumentError(absl::StrCat(
        kName, ": check_overflow is false, but loss_scale is 0 (dynamic), which needs it"));
  }
  return Check("initial_scale_power", scaler.initial_scale_power,
               {std::log2(scaler.min_loss_scale), std::log2(scaler.max_loss_scale),
                "log2 of min_loss_scale to log2 of max_loss_scale"});
}

}  // namespace brigade::optim
