#ifndef BRIGADE_NN_SQUARED_ERROR_H_
#define BRIGADE_NN_SQUARED_ERROR_H_

// The loss of a regression.
//
// Shapes       y [rows, columns] of the type; targets [rows, columns] and losses [rows], float, or
//              double for float64; device memory.
// Precision    Differences and sums in float, double for float64, rounded once.
// Traffic      Forward each array once; backward y twice.
// Stream       Enqueued; allocates nothing, never waits.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming the type, or a shape without columns.

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/pointwise.h"

namespace brigade::nn {

// losses[r] = mean over c of (y[r, c] - targets[r, c])^2.
absl::Status SquaredError(const MatrixShape& shape, const void* y, const void* targets,
                          void* losses, device::Stream& stream);

// In place: y becomes the gradient of seed * (sum of losses). `seed` [1] is device memory.
absl::Status SquaredErrorBackward(const MatrixShape& shape, void* y, const void* targets,
                                  const float* seed, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_SQUARED_ERROR_H_
