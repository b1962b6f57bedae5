#ifndef BRIGADE_NN_SWIGLU_H_
#define BRIGADE_NN_SWIGLU_H_

// The gated unit of Llama's MLP, between a linear layer of 2 * width outputs and one of width
// inputs.
//
// Shapes       x [rows, 2 * width]: gates, and behind them what they let through; y [rows, width];
//              device memory.
// Precision    Formulas in float, double for float64; each element is rounded once.
// Traffic      3 * rows * width elements forward, 5 backward, 7 where the gradient is added.
// Stream       Enqueued; allocates nothing, never waits.
// Determinism  Same bits on every device, but for float64, where the exponential is the library's.
// Errors       InvalidArgument naming the type.
// Source       Shazeer 2020 (arXiv 2002.05202).

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/gradient.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

struct SwigluShape {
  precision::DType dtype;
  int64_t rows;
  // Of the result.
  int64_t width;
};

// y = silu(gate) * up, silu(gate) = gate / (1 + e^-gate).
absl::Status Swiglu(const SwigluShape& shape, const void* x, void* y, device::Stream& stream);

// dx of the shape of x, from dy of that of y. dx may be x.
absl::Status SwigluBackward(const SwigluShape& shape, const void* x, const void* dy, Gradient dx,
                            device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_SWIGLU_H_
