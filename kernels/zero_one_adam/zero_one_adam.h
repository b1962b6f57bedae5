#ifndef BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_H_
#define BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_math.h"

namespace brigade::kernels {

// Where a second moment is 0, the gradient becomes 0: the element has never had one in a step that
// updates second moments. Signs, which are never 0, would move it by a rate over epsilon.
//
// Shapes       Any number of segments of any size, empty ones included.
// Traffic      4 bytes an element read, and as many written where the second moment is 0.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, misaligned address, overlap, memory known as
//              another device's.
absl::Status ZeroOneAdamMask(absl::Span<const ZeroOneMask> segments, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_H_
