#ifndef BRIGADE_KERNELS_REDUCE_REDUCE_H_
#define BRIGADE_KERNELS_REDUCE_REDUCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct ReduceKernelOptions {
  // Any type.
  precision::DType dtype = precision::DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

// targets[...][i] = sources[0][i] op sources[1][i] op ..., for i in [0, size); one source is a
// copy. What collectives are made of where ranks reach each other's memory.
//
// Precision    16-bit types are added in float, in the order of the sources, and rounded once.
// Bytes        Each source is read once and each target written once.
// In place     A target may be one of the sources; otherwise arrays must not overlap.
// Errors       InvalidArgument, with nothing enqueued: no source, no target or more than
//              kMaxReduceArrays, negative size, null with elements, misaligned address, overlap,
//              memory of another device, a type or operation out of range.
absl::Status Reduce(absl::Span<const void* const> sources, absl::Span<void* const> targets,
                    int64_t size, const ReduceKernelOptions& options, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_H_
