#ifndef BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_H_
#define BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/sign_pack/sign_pack_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct SignPackOptions {
  // Of the arrays: float32, float16 or bfloat16.
  precision::DType dtype = precision::DType::kFloat32;
};

// How many doubles of device memory SignPack needs to work in for this list: one per tile of 8192
// elements, and two.
int64_t SignPackWorkspaceSize(absl::Span<const SignPackSegment> segments);

// Arrays to messages of one bit an element, with error feedback and one scale for the whole list:
//
//   c = array + error;  *scale = norm2(c) / sqrt(count);  message: signs of c;
//   error = c - *scale * sign(c)
//
// sign_pack_math.h says what each byte of a message is. The messages of a list carry the same
// scale: they may go to different ranks.
//
// Shapes       Any number of segments of any size, empty ones included; arrays and errors at any
//              element-aligned address, messages at multiples of 64. An empty list has the scale 0.
// Precision    c and the errors are fp32. The sum of squares is exact in the squares and double in
//              the sums, in the canonical order of grad_check; the mean and its root are double,
//              the scale rounds once. Only elements count, so no padding makes it smaller.
// Non-finite   If an element of c is NaN, infinite or 2^64 and more, the scale is NaN, on the
//              message as well, and every error keeps its bits: a bad step poisons nothing.
// Traffic      Arrays and errors are read twice and errors written once: 20.1 bytes an element for
//              fp32, 16.1 for 16 bits.
// Aliasing     None: what is written may not overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              may go when the call returns.
// Determinism  Same bits on every device, for any number of threads and SIMD target, for the same
//              list; another cut into segments is another order of the sum. Every byte of a message
//              is written. What workspace holds afterwards differs between devices.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, misaligned address, overlap, memory known as
//              another device's, workspace too small, another dtype.
// Source       Tang et al., 1-bit Adam (arXiv 2102.02888): its compression and error feedback.
absl::Status SignPack(absl::Span<const SignPackSegment> segments, const SignPackOptions& options,
                      absl::Span<double> workspace, float* scale, device::Stream& stream);

struct SignUnpackOptions {
  // Of the arrays: float32, float16 or bfloat16.
  precision::DType dtype = precision::DType::kFloat32;
  SignUnpackParameters parameters;
};

// array = factor * (values of rank 0 + of rank 1 + ...), over a list of messages.
//
// Precision    Values are added in fp32 in ascending order of ranks; the product with the factor
//              rounds to fp32, the result to the array's type. A message with the scale NaN makes
//              all elements NaN.
// Traffic      ranks * SignBytes of the messages, read once, and the arrays' bytes.
// Errors       Those of SignPack, and: no ranks, a stride that is no multiple of 64 or less than a
//              message, a factor that is not finite.
//
// In all else like SignPack.
absl::Status SignUnpack(absl::Span<const SignUnpackSegment> segments,
                        const SignUnpackOptions& options, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_H_
