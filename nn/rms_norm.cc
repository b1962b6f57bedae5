#include "brigade/nn/rms_norm.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/nn/norm_math.h"

namespace brigade::nn {

absl::Status RmsNorm(const RmsNormInput& input, void* y, device::Stream& stream) {
  if (!(input.epsilon > 0) || std::isinf(input.epsilon)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rms_norm: epsilon is ", input.epsilon, "; it must be positive and finite"));
  }
  return WithType("rms_norm", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RmsNormRows<T> rows = {
        .x = Typed<T>(input.x),
        .weight = Typed<T>(input.weight),
        .bias = nullptr,
        .y = Typed<T>(y),
        .mean = nullptr,
        .inverse_deviation = Typed<Wide<T>>(input.inverse_rms),
        .columns = input.columns,
        .epsilon = static_cast<Wide<T>>(input.epsilon),
    };
    const int64_t size = input.rows * input.columns;
    return EnqueueRows({"rms_norm",
                        {Read(rows.x, size), Read(rows.weight, input.columns), Write(rows.y, size),
                         Write(rows.inverse_deviation, input.rows)}},
                       input.rows, rows, stream);
  });
}

absl::Status RmsNormBackward(const RmsNormInput& input, const void* dy, Gradient dx,
                             Gradient dweight, const Workspace& workspace, device::Stream& stream) {
  return WithType("rms_norm_backward", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RmsNormBackwardColumns<T> columns = {
        .dy = Typed<T>(dy),
        .x = Typed<T>(input.x),
        .mean = nullptr,
        .inverse_deviation = Typed<Wide<T>>(input.inverse_rms),
        .dweight = Typed<T>(dweight.data),
        .dbias = nullptr,
        .accumulate_weight = dweight.accumulate,
        .accumulate_bias = false,
        .rows = input.rows,
        .columns = input.columns,
    };
    const int64_t size = input.rows * input.columns;
    BRIGADE_RETURN_IF_ERROR(CheckParts<RmsNormBackwardColumns<T>>(
        "rms_norm_backward", input.columns, PartsOf(input.rows), workspace, stream));
    if (dweight.data != nullptr) {
      BRIGADE_RETURN_IF_ERROR(
          EnqueueParts({"rms_norm_backward",
                        {Read(columns.dy, size), Read(columns.x, size),
                         Read(columns.inverse_deviation, input.rows),
                         Write(columns.dweight, input.columns), Parts(workspace)}},
                       1, input.columns, columns, PartsOf(input.rows), workspace, stream));
    }
    const RmsNormBackwardRows<T> rows = {
        .dy = columns.dy,
        .x = columns.x,
        .weight = Typed<T>(input.weight),
        .mean = nullptr,
        .inverse_deviation = columns.inverse_deviation,
        .dx = Typed<T>(dx.data),
        .accumulate = dx.accumulate,
        .columns = input.columns,
    };
    return EnqueueRows({"rms_norm_backward",
                        {Read(rows.dy, size), Read(rows.x, size), Read(rows.weight, input.columns),
                         Read(rows.inverse_deviation, input.rows), Write(rows.dx, size)}},
                       input.rows, rows, stream);
  });
}

}  // namespace brigade::nn
