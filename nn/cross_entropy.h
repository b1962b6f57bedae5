#ifndef BRIGADE_NN_CROSS_ENTROPY_H_
#define BRIGADE_NN_CROSS_ENTROPY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/token_ids.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// losses[r] = -log(softmax(logits[r])[target(r)]), in nats; NaN where the target is none of the
// vocabulary, 0 where it is ignored.
//
// Shapes       logits [rows, vocabulary]; losses [rows], float, or double for float64; device
//              memory.
// Stream       Enqueued; allocates nothing, never waits.
// Errors       InvalidArgument naming the type, or a vocabulary of none, or a window on one.
absl::Status CrossEntropy(const TokenIds& ids, precision::DType dtype, const void* logits,
                          void* losses, device::Stream& stream);

// In place: logits become the gradient of seed * (mean of losses); with labels, of their sum.
// `seed` [1] is device memory: the loss scale, with labels divided by how many count. NaN in rows
// without a target, 0 in those that are ignored.
absl::Status CrossEntropyBackward(const TokenIds& ids, precision::DType dtype, void* logits,
                                  const float* seed, device::Stream& stream);

// mean [1] of losses [rows], added up in double, NaN of none; `parts` [PartsOfLosses(rows)] is
// device memory.
absl::Status MeanOfLosses(precision::DType dtype, const void* losses, int64_t rows, double* parts,
                          float* mean, device::Stream& stream);

int64_t PartsOfLosses(int64_t rows);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_CROSS_ENTROPY_H_
