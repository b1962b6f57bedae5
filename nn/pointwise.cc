#include "brigade/nn/pointwise.h"

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/nn/pointwise_math.h"

namespace brigade::nn {
namespace {

int64_t LeadingOf(const MatrixShape& shape) {
  return shape.leading == 0 ? shape.columns : shape.leading;
}

// Elements from the first to the last.
int64_t Extent(const MatrixShape& shape) {
  return shape.rows == 0 ? 0 : (shape.rows - 1) * LeadingOf(shape) + shape.columns;
}

absl::Status CheckLeading(absl::string_view layer, const MatrixShape& shape) {
  if (LeadingOf(shape) >= shape.columns) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(layer, ": rows of ", shape.columns, " columns are ", shape.leading, " apart"));
}

}  // namespace

absl::Status AddBias(const MatrixShape& shape, void* x, const void* bias, const void* residual,
                     device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckLeading("add_bias", shape));
  return WithType("add_bias", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const AddBiasRows<T> rows = {Typed<T>(x), Typed<T>(bias), Typed<T>(residual), shape.columns,
                                 LeadingOf(shape)};
    const int64_t size = shape.rows * shape.columns;
    return EnqueueRows({"add_bias",
                        {Write(rows.x, Extent(shape)), Read(rows.bias, shape.columns),
                         Read(rows.residual, residual == nullptr ? 0 : size)}},
                       shape.rows, rows, stream);
  });
}

absl::Status AddBiasGelu(const MatrixShape& shape, void* x, const void* bias, void* y,
                         device::Stream& stream) {
  return WithType("gelu", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const AddBiasGeluRows<T> rows = {Typed<T>(x), Typed<T>(bias), Typed<T>(y), shape.columns};
    const int64_t size = shape.rows * shape.columns;
    return EnqueueRows(
        {"gelu", {Write(rows.x, size), Read(rows.bias, shape.columns), Write(rows.y, size)}},
        shape.rows, rows, stream);
  });
}

absl::Status Gelu(const MatrixShape& shape, const void* x, void* y, device::Stream& stream) {
  return WithType("gelu", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const GeluRows<T> rows = {Typed<T>(x), Typed<T>(y), shape.columns};
    const int64_t size = shape.rows * shape.columns;
    return EnqueueRows({"gelu", {Read(rows.x, size), Write(rows.y, size)}}, shape.rows, rows,
                       stream);
  });
}

absl::Status GeluBackward(const MatrixShape& shape, const void* x, void* dy,
                          device::Stream& stream) {
  return WithType("gelu_backward", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const GeluBackwardRows<T> rows = {Typed<T>(x), Typed<T>(dy), shape.columns};
    const int64_t size = shape.rows * shape.columns;
    return EnqueueRows({"gelu_backward", {Read(rows.x, size), Write(rows.dy, size)}}, shape.rows,
                       rows, stream);
  });
}

absl::Status Relu(const MatrixShape& shape, const void* x, void* y, device::Stream& stream) {
  return WithType("relu", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const ReluRows<T> rows = {Typed<T>(x), Typed<T>(y), shape.columns};
    const int64_t size = shape.rows * shape.columns;
    return EnqueueRows({"relu", {Read(rows.x, size), Write(rows.y, size)}}, shape.rows, rows,
                       stream);
  });
}

absl::Status ReluBackward(const MatrixShape& shape, const void* y, void* dy,
                          device::Stream& stream) {
  return WithType("relu_backward", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const ReluBackwardRows<T> rows = {Typed<T>(y), Typed<T>(dy), shape.columns};
    const int64_t size = shape.rows * shape.columns;
    return EnqueueRows({"relu_backward", {Read(rows.y, size), Write(rows.dy, size)}}, shape.rows,
                       rows, stream);
  });
}

absl::Status BiasBackward(const MatrixShape& shape, const void* dy, Gradient dbias,
                          const Workspace& workspace, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckLeading("bias_backward", shape));
  return WithType("bias_backward", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const SumOfRows<T> columns = {Typed<T>(dy), Typed<T>(dbias.data), dbias.accumulate,
                                  shape.rows,   shape.columns,        LeadingOf(shape)};
    return EnqueueParts(
        {"bias_backward",
         {Read(columns.x, Extent(shape)), Write(columns.sum, shape.columns), Parts(workspace)}},
        1, shape.columns, columns, PartsOf(shape.rows), workspace, stream);
  });
}

}  // namespace brigade::nn
