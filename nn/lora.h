#ifndef BRIGADE_NN_LORA_H_
#define BRIGADE_NN_LORA_H_

// What a low-rank adapter adds to a linear layer, whose own product comes before.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/dropout.h"
#include "brigade/nn/gradient.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// Neighbouring rows of a matrix that are neighbours in a longer one too: among its own rows, and in
// the longer one.
struct RowRun {
  int64_t local, global, count;
};

// What the calls of one adapter share. Arrays are device memory.
struct LoraInput {
  precision::DType dtype;
  // [rows, inputs]: the layer's.
  const void* x;
  // [rank, inputs].
  const void* a;
  // [outputs, rank].
  const void* b;
  int64_t rows;
  int64_t inputs;
  int64_t outputs;
  int64_t rank;
  // alpha / rank, or alpha / sqrt(rank) (Kalajdzievski 2023).
  double scale;
  // Of x, for the adapter alone; with a probability of 0 there is none.
  DropoutMask dropout = {};
  // Where x has some rows of a longer matrix, which of them, in ascending order: what is dropped is
  // then what would be of that, whose first element dropout.first_element is. Empty: the rows are
  // neighbours.
  absl::Span<const RowRun> runs = {};
  // Elements from one row of y or dy to the next; 0: `outputs`.
  int64_t y_leading = 0;
};

// Memory that several adapters use one after the other; nothing in it is kept between passes.
struct LoraScratch {
  // [rows, inputs]; only with dropout.
  void* x = nullptr;
  // [rows, rank] each; the second one only in the backward pass.
  void* hidden = nullptr;
  void* dhidden = nullptr;
};

// y += scale * (dropout(x) a^T) b^T.
//
// Shapes       y [rows, outputs]; no extent may be 0.
// Precision    Each product is that of Blas, rounded once to `dtype`: dropout(x) a^T, and then y.
// Stream       Enqueued; allocates nothing, never waits.
// Errors       Those of Blas::Gemm and of Dropout.
// Source       Hu et al. 2021 (arXiv 2106.09685).
absl::Status Lora(const LoraInput& input, const LoraScratch& scratch, void* y, Blas& blas,
                  device::Stream& stream);

// From dy [rows, outputs]: da and db, of the shapes of a and b, and the adapter's part of dx, which
// is added to what is there. Those without data are left out. dropout(x) a^T is computed again, to
// the same bits.
absl::Status LoraBackward(const LoraInput& input, const LoraScratch& scratch, const void* dy,
                          void* dx, Gradient da, Gradient db, Blas& blas, device::Stream& stream);

// The parts of both, for adapters that ranks share. dropout(x) of so many rows from `first` on: in
// `to`, or where they are in x if nothing is dropped.
absl::StatusOr<const void*> LoraDropped(const LoraInput& input, int64_t first, int64_t rows,
                                        void* to, device::Stream& stream);
// scratch.hidden = dropout(x) a^T; gives dropout(x), which is x or in scratch.x.
absl::StatusOr<const void*> LoraDown(const LoraInput& input, const LoraScratch& scratch, Blas& blas,
                                     device::Stream& stream);
// From scratch.dhidden: da, with what LoraDown gave, and the adapter's part of dx, as above;
// scratch.x is overwritten.
absl::Status LoraDownBackward(const LoraInput& input, const LoraScratch& scratch,
                              const void* dropped, void* dx, Gradient da, Blas& blas,
                              device::Stream& stream);

// The same behind rows that were looked up: of an embedding `hidden` are the rows [rows, rank] of
// the transposed a. y += scale * hidden b^T.
absl::Status LoraUp(const LoraInput& input, const void* hidden, void* y, Blas& blas,
                    device::Stream& stream);
// db from dy and `hidden`; nothing without data.
absl::Status LoraUpGradient(const LoraInput& input, const void* hidden, const void* dy, Gradient db,
                            Blas& blas, device::Stream& stream);
// The same, and dhidden = scale * dy b.
absl::Status LoraUpBackward(const LoraInput& input, const void* hidden, const void* dy,
                            void* dhidden, Gradient db, Blas& blas, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_LORA_H_
