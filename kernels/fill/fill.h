#ifndef BRIGADE_KERNELS_FILL_FILL_H_
#define BRIGADE_KERNELS_FILL_FILL_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/fill/fill_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

// Sets every element of a list of arrays to `value`.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address.
// Precision    Any dtype. float32, float16 and bfloat16 take `value` rounded to nearest even to
//              float, then to the type; integers only values that they represent.
// Traffic      size * sizeof(dtype) bytes, written only.
// Aliasing     Segments may not overlap.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              may go when the call returns.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, misaligned address, overlap, another device's
//              memory, an invalid dtype, a value that an integer type does not represent.
absl::Status Fill(absl::Span<const FillSegment> segments, precision::DType dtype, double value,
                  device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_FILL_FILL_H_
