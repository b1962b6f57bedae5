#ifndef BRIGADE_KERNELS_CAST_CAST_H_
#define BRIGADE_KERNELS_CAST_CAST_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/cast/cast_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct CastOptions {
  // float32, float16 or bfloat16.
  precision::DType source_dtype = precision::DType::kFloat32;
  // float32, float16 or bfloat16.
  precision::DType target_dtype = precision::DType::kFloat32;
  // Device memory: a factor on every element; null means 1.
  const float* scale = nullptr;
  // Whether to add to the target instead of overwriting it.
  bool accumulate = false;
};

// target = source * scale, or target += source * scale, over a list of pairs of arrays.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address. On a GPU, where source and target lie at different distances from a sector
//              of 32 bytes, elements move one by one: as much traffic, in more instructions.
// Precision    Product and sum round to fp32, the result to nearest even in the target's type.
// Traffic      size * (source + target) bytes, and the target's once more to accumulate: 6 for fp32
//              to bf16, 10 for bf16 added to fp32.
// Aliasing     None: no target may overlap another array.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads, SIMD target and cut into
//              segments, payloads of NaN aside.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, misaligned address, overlap, memory known as
//              another device's, another dtype.
absl::Status Cast(absl::Span<const CastSegment> segments, const CastOptions& options,
                  device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_H_
