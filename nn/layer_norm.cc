#include "brigade/nn/layer_norm.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/nn/norm_math.h"

namespace brigade::nn {

absl::Status LayerNorm(const LayerNormInput& input, const void* bias, void* y,
                       device::Stream& stream) {
  if (!(input.epsilon > 0) || std::isinf(input.epsilon)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer_norm: epsilon is ", input.epsilon, "; it must be positive and finite"));
  }
  return WithType("layer_norm", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    const LayerNormRows<T> rows = {
        Typed<T>(input.x),
        Typed<T>(input.weight),
        Typed<T>(bias),
        Typed<T>(y),
        Typed<Wide<T>>(input.mean),
        Typed<Wide<T>>(input.inverse_deviation),
        input.columns,
        static_cast<Wide<T>>(input.epsilon),
    };
    const int64_t size = input.rows * input.columns;
    return EnqueueRows({"layer_norm",
                        {Read(rows.x, size), Read(rows.weight, input.columns),
                         Read(rows.bias, input.columns), Write(rows.y, size),
                         Write(rows.mean, input.rows), Write(rows.inverse_deviation, input.rows)}},
                       input.rows, rows, stream);
  });
}

absl::Status LayerNormBackward(const LayerNormInput& input, const void* dy, Gradient dx,
                               Gradient dweight, Gradient dbias, const Workspace& workspace,
                               device::Stream& stream) {
  return WithType("layer_norm_backward", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    using W = Wide<T>;
    const LayerNormBackwardColumns<T> columns = {
        Typed<T>(dy),
        Typed<T>(input.x),
        Typed<W>(input.mean),
        Typed<W>(input.inverse_deviation),
        Typed<T>(dweight.data),
        Typed<T>(dbias.data),
        dweight.accumulate,
        dbias.accumulate,
        input.rows,
        input.columns,
    };
    const int64_t size = input.rows * input.columns;
    BRIGADE_RETURN_IF_ERROR(CheckParts<LayerNormBackwardColumns<T>>(
        "layer_norm_backward", input.columns, PartsOf(input.rows), workspace, stream));
    if (dweight.data != nullptr || dbias.data != nullptr) {
      BRIGADE_RETURN_IF_ERROR(EnqueueParts(
          {"layer_norm_backward",
           {Read(columns.dy, size), Read(columns.x, size), Read(columns.mean, input.rows),
            Read(columns.inverse_deviation, input.rows),
            Write(columns.dweight, dweight.data == nullptr ? 0 : input.columns),
            Write(columns.dbias, dbias.data == nullptr ? 0 : input.columns), Parts(workspace)}},
          1, input.columns, columns, PartsOf(input.rows), workspace, stream));
    }
    const LayerNormBackwardRows<T> rows = {
        columns.dy,
        columns.x,
        Typed<T>(input.weight),
        columns.mean,
        columns.inverse_deviation,
        Typed<T>(dx.data),
        dx.accumulate,
        input.columns,
    };
    return EnqueueRows({"layer_norm_backward",
                        {Read(rows.dy, size), Read(rows.x, size), Read(rows.weight, input.columns),
                         Read(rows.mean, input.rows), Read(rows.inverse_deviation, input.rows),
                         Write(rows.dx, size)}},
                       input.rows, rows, stream);
  });
}

}  // namespace brigade::nn
