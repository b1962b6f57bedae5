#ifndef BRIGADE_NN_LAYER_NORM_H_
#define BRIGADE_NN_LAYER_NORM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// What the calls of one layer normalisation share. Arrays are device memory.
struct LayerNormInput {
  precision::DType dtype;
  // [rows, columns].
  const void* x;
  // [columns].
  const void* weight;
  // [rows], float; double for float64.
  void* mean;
  // Of the same shape and type.
  void* inverse_deviation;
  int64_t rows;
  int64_t columns;
  // Added to the variance.
  double epsilon = 1e-5;
};

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, row by row; writes mean and
// inverse_deviation.
//
// Shapes       y [rows, columns], bias [columns].
// Precision    Sums in float, or double for float64; each element is rounded once.
// Stream       Enqueued; allocates nothing, never waits.
// Errors       InvalidArgument naming the type, or an epsilon that is not positive and finite.
// Source       Ba, Kiros and Hinton 2016.
absl::Status LayerNorm(const LayerNormInput& input, const void* bias, void* y,
                       device::Stream& stream);

// From dy [rows, columns]: dx, dweight, dbias, of the shapes of x, weight, bias; of the latter what
// has no data is left out. Sums over rows are
// in an order that depends on their number alone (rows.h). InvalidArgument if the workspace has too
// little room for the sums, or is of another device than the stream.
absl::Status LayerNormBackward(const LayerNormInput& input, const void* dy, Gradient dx,
                               Gradient dweight, Gradient dbias, const Workspace& workspace,
                               device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_LAYER_NORM_H_
