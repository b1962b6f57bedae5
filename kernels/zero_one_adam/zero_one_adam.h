#ifndef BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_H_
#define BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_math.h"

namespace brigade::kernels {

// What 0/1 Adam does beside Adam, between its exchanges.
//
// Shapes       Any number of segments of any size, empty ones included.
// Traffic      Mask: 4 bytes an element read, and as many written where the second moment is 0;
//              Receive: 8; Take: 8, of zeros 4, of a skipped step none; Rates: a few numbers.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, misaligned address, overlap, a group that is not
//              one of the numbers, memory known as another device's.

// Where a second moment is 0, the gradient becomes 0: the element has never had one in a step that
// updates second moments. Signs, which are never 0, would move it by a rate over epsilon.
absl::Status ZeroOneAdamMask(absl::Span<const ZeroOneMask> segments, device::Stream& stream);

// message = message * numbers[group].inverse.
absl::Status ZeroOneAdamReceive(absl::Span<const ZeroOneMessage> messages,
                                absl::Span<const ZeroOneNumbers> numbers, device::Stream& stream);

// target = source, or 0, unless the step is skipped.
absl::Status ZeroOneAdamTake(absl::Span<const ZeroOneCopy> copies, const StepState* state,
                             device::Stream& stream);

// CountRates (zero_one_adam_math.h) of a step in device memory. On the CPU the stream's error is
// FailedPrecondition if nobody has filled it.
absl::Status ZeroOneAdamRates(const ZeroOneRates& rates, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_H_
