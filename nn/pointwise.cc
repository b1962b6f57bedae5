#include "brigade/nn/pointwise.h"

#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/nn/pointwise_math.h"

namespace brigade::nn {

absl::Status AddBias(const MatrixShape& shape, void* x, const void* bias, const void* residual,
                     device::Stream& stream) {
  return WithType("add_bias", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const AddBiasRows<T> rows = {Typed<T>(x), Typed<T>(bias), Typed<T>(residual), shape.columns};
    const int64_t size = shape.rows * shape.columns;
    return EnqueueRows({"add_bias",
                        {Write(rows.x, size), Read(rows.bias, shape.columns),
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

absl::Status BiasBackward(const MatrixShape& shape, const void* dy, Gradient dbias,
                          const Workspace& workspace, device::Stream& stream) {
  return WithType("bias_backward", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const SumOfRows<T> columns = {Typed<T>(dy), Typed<T>(dbias.data), dbias.accumulate, shape.rows,
                                  shape.columns};
    return EnqueueParts({"bias_backward",
                         {Read(columns.x, shape.rows * shape.columns),
                          Write(columns.sum, shape.columns), Parts(workspace)}},
                        1, shape.columns, columns, PartsOf(shape.rows), workspace, stream);
  });
}

}  // namespace brigade::nn
