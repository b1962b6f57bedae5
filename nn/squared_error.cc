#include "brigade/nn/squared_error.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/nn/squared_error_math.h"

namespace brigade::nn {
namespace {

// Rows come without a gap.
absl::Status Check(absl::string_view layer, const MatrixShape& shape) {
  if (shape.columns > 0 && (shape.leading == 0 || shape.leading == shape.columns)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(layer, ": rows of ", shape.columns, " columns, ", shape.leading, " apart"));
}

}  // namespace

absl::Status SquaredError(const MatrixShape& shape, const void* y, const void* targets,
                          void* losses, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check("squared_error", shape));
  return WithType("squared_error", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const SquaredErrorRows<T> rows = {Typed<T>(y), Typed<Wide<T>>(targets), Typed<Wide<T>>(losses),
                                      shape.columns};
    const int64_t size = shape.rows * shape.columns;
    return EnqueueRows(
        {"squared_error",
         {Read(rows.y, size), Read(rows.targets, size), Write(rows.losses, shape.rows)}},
        shape.rows, rows, stream);
  });
}

absl::Status SquaredErrorBackward(const MatrixShape& shape, void* y, const void* targets,
                                  const float* seed, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check("squared_error_backward", shape));
  return WithType("squared_error_backward", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const SquaredErrorBackwardRows<T> rows = {Typed<T>(y), Typed<Wide<T>>(targets), seed,
                                              shape.columns};
    const int64_t size = shape.rows * shape.columns;
    return EnqueueRows({"squared_error_backward",
                        {Write(rows.y, size), Read(rows.targets, size), Read(rows.seed, 1)}},
                       shape.rows, rows, stream);
  });
}

}  // namespace brigade::nn
