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
  // ReducePartialsBytes bytes of the stream's device, aligned to what is added in; overwritten.
  // Not looked at where there are 0 bytes.
  void* partials = nullptr;
};

// Bytes that Reduce needs for partial results: none for up to kMaxReduceArrays sources, else `size`
// elements of the type that is added in, which is float for 16-bit types.
int64_t ReducePartialsBytes(int64_t sources, int64_t size, precision::DType dtype);

// targets[...][i] = sources[0][i] op sources[1][i] op ..., for i in [0, size); one source is a
// copy. What collectives are made of where ranks reach each other's memory.
//
// Precision    16-bit types are added in float, in the order of the sources, and rounded once.
// Arrays       1 to kMaxReduceArrays targets, and any number of sources. They are read in passes
//              of kMaxReduceArrays, with the results so far in `options.partials`.
// Bytes        Each source is read once and each target written once. Each pass but the last
//              writes the partial results, and the next one reads them: in all
//              2 * ReducePartialsBytes for each further pass.
// In place     A target may be one of the sources; otherwise arrays must not overlap. The partial
//              results overlap nothing.
// Errors       InvalidArgument, with nothing enqueued: no source, no target or more than
//              kMaxReduceArrays, negative size, null with elements, misaligned address, overlap,
//              memory of another device, a type or operation out of range.
absl::Status Reduce(absl::Span<const void* const> sources, absl::Span<void* const> targets,
                    int64_t size, const ReduceKernelOptions& options, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_H_
