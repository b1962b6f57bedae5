#ifndef BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_H_
#define BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/lamb/lamb.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_math.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_parameters.h"

namespace brigade::kernels {

// InvalidArgument naming the coefficient and its value, behind `name`.
absl::Status Validate(const OneBitLambCoefficients& coefficients, const char* name);

// The passes of 1-bit LAMB beside those of LAMB (lamb.h). The numbers of all tensors of a model lie
// in one array, the same on all ranks; so do the sums of all ranks, where LambTensor says. In a
// warm-up step, behind LambTrusts of these sums:
//
//   OneBitLambRatios   each tensor's mean of trust ratios
//
// When second moments are frozen, once; what has numbers with a scale keeps everything, and where
// all tensors with elements have one, sums are not looked at:
//
//   OneBitLambFreeze   fresh second moments are the frozen ones; sums of squares of momentum
//   (the ranks exchange their sums)
//   OneBitLambScales   each tensor's scale; its factor is 1
//
// In each step from then on:
//
//   OneBitLambSend     own momentum, beta1 m + (1 - beta1) g, times the tensor's scale
//   (the ranks exchange that, and have the mean)
//   OneBitLambReceive  the mean divided by the scale
//   OneBitLambMoments  m is that; fresh second moments, of the gradient by which m changed; sums
//   (the ranks exchange their sums)
//   OneBitLambTrusts   each tensor's factor, and its ratio times that
//   LambParams         (lamb.h) with these ratios, and steps without correction of bias
//
// Shapes       Any number of segments of any size, empty ones included. Each begins at a multiple
//              of kLambTile elements of its tensor.
// Precision    fp32, each operation rounded once; sums are double, in the order of lamb_math.h.
// Traffic      An element: Send 8 bytes and the gradient's, Receive 8, Moments 28, Freeze 12.
// Aliasing     None.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits.
// Skipped      Ratios, Moments and Trusts write nothing in a step that is skipped; what Send writes
//              then is not defined.
// Determinism  Same bits on every device, for any number of threads and ranks.
// Errors       InvalidArgument naming argument and value, before anything is enqueued.
absl::Status OneBitLambRatios(absl::Span<const LambTensor> tensors, const LambOptions& options,
                              const OneBitLambConstants& constants, absl::Span<const double> sums,
                              absl::Span<OneBitLambNumbers> numbers, device::Stream& stream);
absl::Status OneBitLambFreeze(absl::Span<const OneBitLambSegment> segments,
                              absl::Span<const OneBitLambNumbers> numbers,
                              absl::Span<OneBitLambSums> sums, device::Stream& stream);
// `sizes`: the elements of each tensor. `total`: device memory, of the GPU alone for what lies
// between its kernels.
absl::Status OneBitLambScales(absl::Span<const LambTensor> tensors, absl::Span<const int64_t> sizes,
                              absl::Span<const OneBitLambSums> sums, double* total,
                              absl::Span<OneBitLambNumbers> numbers, device::Stream& stream);
absl::Status OneBitLambSend(absl::Span<const OneBitLambMessage> messages,
                            const LambOptions& options, absl::Span<const OneBitLambNumbers> numbers,
                            device::Stream& stream);
absl::Status OneBitLambReceive(absl::Span<const OneBitLambMessage> messages,
                               absl::Span<const OneBitLambNumbers> numbers, device::Stream& stream);
absl::Status OneBitLambMoments(absl::Span<const OneBitLambSegment> segments,
                               const LambOptions& options, absl::Span<OneBitLambSums> sums,
                               device::Stream& stream);
absl::Status OneBitLambTrusts(absl::Span<const LambTensor> tensors, const LambOptions& options,
                              const OneBitLambConstants& constants,
                              absl::Span<const OneBitLambSums> sums,
                              absl::Span<OneBitLambNumbers> numbers, absl::Span<float> trusts,
                              device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_H_
