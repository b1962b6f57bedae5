#ifndef BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_H_
#define BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

// How many doubles of device memory GradCheck needs to work in for this list: one per tile of 8192
// elements. Sizes must not be negative, nor add up to more than an address space; GradCheck itself
// says so.
int64_t GradCheckWorkspaceSize(absl::Span<const GradSegment> segments);

// One read-only pass over a list of gradients: *stats = {sum of squares, whether all are finite}.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address. An empty list has the sum 0 and is finite.
// Precision    Squares are exact in double, and the sums are double. NaN, an infinity, or a value
//              whose square overflows fp32 (2^64 and more) makes all_finite 0 and the sum infinity;
//              a sum of finite squares never does.
// Traffic      The gradients' bytes, read once, and 8 bytes written per 8192 elements.
// Aliasing     stats and workspace may not overlap anything. What workspace holds afterwards
//              differs between devices.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits.
// Determinism  The order of summation is canonical: same bits on every device, for any number of
//              threads and SIMD target, for the same list. A different cut into segments is a
//              different order.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, misaligned address, overlap, memory known as
//              another device's, workspace too small, a dtype other than float32, float16,
//              bfloat16.
// Source       The order is defined in tests/spec/sums.h.
absl::Status GradCheck(absl::Span<const GradSegment> segments, precision::DType dtype,
                       absl::Span<double> workspace, GradStats* stats, device::Stream& stream);

// The two halves of it, for a list whose segments become known one after the other and need not
// stay for the end: GradTileSums of each segment, or run of segments, at its place in the list's
// workspace, then GradCheckFinish of the whole workspace give GradCheck's bits. In all else like
// GradCheck; what is between them may be on several streams that events order.
//
// tile_sums  Has GradCheckWorkspaceSize of the segments given.
absl::Status GradTileSums(absl::Span<const GradSegment> segments, precision::DType dtype,
                          absl::Span<double> tile_sums, device::Stream& stream);
// Overwrites the first of `tile_sums`.
absl::Status GradCheckFinish(absl::Span<double> tile_sums, GradStats* stats,
                             device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_H_
