#ifndef BRIGADE_KERNELS_ADAM8_ADAM8_H_
#define BRIGADE_KERNELS_ADAM8_ADAM8_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/adam8/adam8_math.h"

namespace brigade::kernels {

// One step of Adam or AdamW over a list of segments whose moments are codes of 8 bits with a scale
// for each 256 (adam8_math.h), in one pass over memory: moments are made of codes, updated as Adam
// (adam.h) does, used for the parameter as they are in fp32, and become codes again, with the
// largest magnitude of their block as the new scale. With the skip flag set every bit stays. State
// of zeros is a new one.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address. A block begins at each 256th element of a segment: parts of a tensor on
//              several ranks have the whole tensor's bits where they begin so.
// Precision    Arithmetic fp32, each operation rounded once; a code is the nearest of 256; the copy
//              rounds to nearest even. A block with NaN or infinity is NaN from then on.
// Traffic      8 bytes per element of the parameter and 4 1/16 of moments, plus the gradient's,
//              plus the copy's: 16 1/16 with fp32 gradients, as with 16-bit gradients and a copy.
// Aliasing     None: anything written may not overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads and SIMD target, payloads of
//              NaN aside.
// Errors       Those of Adam.
// Source       Dettmers et al. 2022 (arXiv 2110.02861).
absl::Status Adam8(absl::Span<const Adam8Segment> segments, const AdamOptions& options,
                   device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM8_ADAM8_H_
