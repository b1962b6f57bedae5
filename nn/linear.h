#ifndef BRIGADE_NN_LINEAR_H_
#define BRIGADE_NN_LINEAR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// What the calls of one linear layer share. Arrays are device memory.
struct LinearInput {
  precision::DType dtype;
  // [rows, inputs].
  const void* x;
  // [outputs, inputs].
  const void* weight;
  int64_t rows;
  int64_t inputs;
  int64_t outputs;
  // Whether weight is [inputs, outputs], as GPT-2's layers have it (Conv1D), its gradient too.
  bool input_major = false;
  // Elements from one row of y or dy to the next, of several layers side by side; 0: `outputs`.
  int64_t y_leading = 0;
  // Whether Linear adds to y: a residual.
  bool accumulate = false;
};

// y = x weight^T, or y += x weight^T, and + bias unless it is null.
//
// Shapes       y [rows, outputs], bias [outputs]; no extent may be 0.
// Precision    The product is that of Blas, rounded once; with a bias, once more after its
//              addition.
// Memory       On the CPU 16-bit types need Blas::WorkspaceBytes(dtype, rows, outputs, inputs), in
//              both passes.
// Stream       Enqueued; allocates nothing, never waits.
// Errors       Those of Blas::Gemm.
absl::Status Linear(const LinearInput& input, const void* bias, void* y, Blas& blas,
                    device::Stream& stream);

// From dy [rows, outputs]: dx, dweight, dbias, of the shapes of x, weight, bias. Those without data
// are left out: dx of a model's first layer, dbias of a layer that has none.
//
// Aliasing     dx, which is written last, may be x.
// Errors       Those of Blas::Gemm, and of BiasBackward (pointwise.h).
absl::Status LinearBackward(const LinearInput& input, const void* dy, Gradient dx, Gradient dweight,
                            Gradient dbias, Blas& blas, const Workspace& workspace,
                            device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_LINEAR_H_
