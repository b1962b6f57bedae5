#ifndef BRIGADE_NN_POINTWISE_H_
#define BRIGADE_NN_POINTWISE_H_

// What follows a matrix product, element by element: biases, the residual, GELU, ReLU, and
// their gradients.
//
// Shapes       Matrices [rows, columns], biases [columns]; device memory.
// Precision    Formulas and sums in float, double for float64; each element is rounded once.
// Stream       Enqueued; allocates nothing, never waits.

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

struct MatrixShape {
  precision::DType dtype;
  int64_t rows;
  int64_t columns;
  // Elements from one row of x or dy to the next, for AddBias and BiasBackward; 0: `columns`.
  int64_t leading = 0;
};

// x = x + bias, and + residual [rows, columns] unless it is null.
absl::Status AddBias(const MatrixShape& shape, void* x, const void* bias, const void* residual,
                     device::Stream& stream);

// x = x + bias; y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
absl::Status AddBiasGelu(const MatrixShape& shape, void* x, const void* bias, void* y,
                         device::Stream& stream);

// y = gelu(x), with the x that AddBiasGelu left: the same y.
absl::Status Gelu(const MatrixShape& shape, const void* x, void* y, device::Stream& stream);

// dy = dy * gelu'(x), with the x that AddBiasGelu left.
absl::Status GeluBackward(const MatrixShape& shape, const void* x, void* dy,
                          device::Stream& stream);

// y = x where x is above 0, else 0; NaN stays. y may be x.
absl::Status Relu(const MatrixShape& shape, const void* x, void* y, device::Stream& stream);

// dy = dy where y, which Relu left, is not 0, else 0.
absl::Status ReluBackward(const MatrixShape& shape, const void* y, void* dy,
                          device::Stream& stream);

// dbias = sum over rows of dy, in an order that depends on their number alone (rows.h).
// InvalidArgument if the workspace has too little room for the sums, or is of another device than
// the stream.
absl::Status BiasBackward(const MatrixShape& shape, const void* dy, Gradient dbias,
                          const Workspace& workspace, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_POINTWISE_H_
