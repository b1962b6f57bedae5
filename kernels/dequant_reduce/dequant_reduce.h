#ifndef BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_H_
#define BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct DequantReduceOptions {
  // Of the messages that are added.
  QuantFormat format = QuantFormat::kInt8;
  DequantReduceParameters parameters = {};
  // Of the targets, where they are arrays: float32, float16 or bfloat16.
  precision::DType target_dtype = precision::DType::kFloat32;
  // Given: the targets are messages of this format, and target_dtype is not looked at.
  std::optional<QuantFormat> target_format = std::nullopt;
};

// target = factor * (messages of rank 0 + of rank 1 + ...), over a list: the sum of what ranks sent
// as codes, as an array or quantised again for the next hop.
//
// Shapes       Any number of segments of any size, empty ones included, and any number of ranks;
//              arrays at any element-aligned address, messages at multiples of 64.
// Precision    The values of codes are fp32, and are added in fp32 in ascending order of ranks; the
//              product with the factor rounds to fp32, the result as Cast or BlockQuantize does. A
//              block that is not finite on one rank is NaN in the sum, all of it; a message whose
//              sum overflows has a NaN block.
// Traffic      ranks * QuantBytes of the messages, read once, and the target's bytes.
// Aliasing     None: no target may overlap another array or message.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads and SIMD target, payloads of
//              NaN in arrays aside. Every byte of a target is written.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, misaligned address, overlap, memory known as
//              another device's, no ranks, a stride that is no multiple of 64 or less than a
//              message, a factor that is not finite, another dtype or format.
absl::Status DequantReduce(absl::Span<const DequantReduceSegment> segments,
                           const DequantReduceOptions& options, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_H_
