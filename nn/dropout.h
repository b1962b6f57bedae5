#ifndef BRIGADE_NN_DROPOUT_H_
#define BRIGADE_NN_DROPOUT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/gradient.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// Which elements a dropout zeroes: a function of these numbers and of an element's index alone. No
// mask is stored: every pass and every recomputation makes it again.
struct DropoutMask {
  // The share of elements that become 0, at least 0 and below 1; it is rounded to a multiple of
  // 2^-32.
  double probability = 0;
  // Of the whole training.
  uint64_t seed = 0;
  // A number of the layer's own.
  uint32_t layer = 0;
  // [1], device memory, of which the low 32 bits count: a number of the step's own, the same in the
  // forward and the backward pass. An optimizer has one: iteration of the kernels::StepState that
  // optim::StepController::state() points to. May be null if the probability is 0.
  const int64_t* step = nullptr;
  // The index of the first element, at least 0. Ranks and micro-batches that share a seed count
  // through: with the index of their first row in the whole batch, times the columns, the mask does
  // not depend on the number of ranks.
  int64_t first_element = 0;
};

// y = x / (1 - p), or 0 where the mask drops an element, and + residual unless it is null. A
// dropped element is 0 whatever it was, NaN too. With p = 0, y = x + residual, to the bit.
//
// Shapes       x, residual, y: `size` elements, row by row; device memory.
// Precision    In float, double for float64; each element is rounded once.
// Traffic      2 * size elements; 3 with a residual.
// Aliasing     y may be x, or the residual.
// Stream       Enqueued; allocates nothing, never waits.
// Determinism  Same mask and same bits on every device: word i % 4 of Philox (philox.h) with the
//              counter {i / 4 (64 bits), layer, step} and the key `seed` drops element i if it is
//              below p * 2^32.
// Errors       InvalidArgument naming the type, the probability, the first element or the step.
// Source       Srivastava et al. 2014; the counters: Salmon et al. 2011.
absl::Status Dropout(precision::DType dtype, int64_t size, const DropoutMask& mask, const void* x,
                     const void* residual, void* y, device::Stream& stream);

// dx = dy / (1 - p), or 0 where the mask drops an element; dx may be dy. The residual's gradient is
// dy.
absl::Status DropoutBackward(precision::DType dtype, int64_t size, const DropoutMask& mask,
                             const void* dy, Gradient dx, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_DROPOUT_H_
