#ifndef BRIGADE_NN_RMS_NORM_H_
#define BRIGADE_NN_RMS_NORM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// What the calls of one RMS normalisation share. Arrays are device memory.
struct RmsNormInput {
  precision::DType dtype;
  // [rows, columns].
  const void* x;
  // [columns].
  const void* weight;
  // [rows], float; double for float64.
  void* inverse_rms;
  int64_t rows;
  int64_t columns;
  // Added to the mean of squares.
  double epsilon = 1e-5;
};

// y = x / sqrt(mean of x^2 + epsilon) * weight, row by row; writes inverse_rms.
//
// Shapes       y [rows, columns]; it may be x where no backward pass follows.
// Precision    Sums in float, or double for float64; each element is rounded once.
// Stream       Enqueued; allocates nothing, never waits.
// Errors       InvalidArgument naming the type, or an epsilon that is not positive and finite.
// Source       Zhang and Sennrich 2019 (arXiv 1910.07467).
absl::Status RmsNorm(const RmsNormInput& input, void* y, device::Stream& stream);

// From dy [rows, columns]: dx and dweight, of the shapes of x and weight; without data dweight is
// left out. Sums over rows are in an
// order that depends on their number alone (rows.h). InvalidArgument if the workspace has too
// little room for the sums, or is of another device than the stream.
absl::Status RmsNormBackward(const RmsNormInput& input, const void* dy, Gradient dx,
                             Gradient dweight, const Workspace& workspace, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_RMS_NORM_H_
