#ifndef BRIGADE_COLLECTIVES_COMPRESSED_SPARSE_MEAN_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_SPARSE_MEAN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/collectives/compressed/sparse_mean_math.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// output[i] = factor * (0 + value of rank 0 at i + value of rank 1 at i + ...), where a rank that
// has sent nothing at i adds nothing; and *non_finite, if something of that is infinite or NaN,
// becomes another number than 0. It is 0 before.
//
// Messages that an error of the communicator has left undefined give undefined sums, and nothing
// else is written.
//
// Shapes       `size` elements of fp32, fp16 or bf16; indices are in [0, size), and of a rank each
//              is there once.
// Precision    fp32, each sum and the product rounded, then to the type. Judged before the type.
// Traffic      The output is written once; messages are read once, 8 bytes an element of them.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits.
// Determinism  Same bits on every device, for any number of threads.
// Errors       InvalidArgument naming argument and value, before anything is enqueued: null,
//              misaligned address, negative size, overlap, memory known as another device's.
absl::Status SparseMean(const SparseMessages& messages, float factor, void* output, int64_t size,
                        precision::DType dtype, int32_t* non_finite, device::Stream& stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_SPARSE_MEAN_H_
