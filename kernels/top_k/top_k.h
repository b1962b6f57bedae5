#ifndef BRIGADE_KERNELS_TOP_K_TOP_K_H_
#define BRIGADE_KERNELS_TOP_K_TOP_K_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/top_k/top_k_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct TopKOptions {
  // Of arrays and values: float32, float16 or bfloat16.
  precision::DType dtype = precision::DType::kFloat32;
  // Whether selected elements become 0 in the array: what is left of it is the error that the next
  // step adds to.
  bool clear = false;
};

// The k elements of greatest magnitude of each array of a list: values and indices, in the order of
// indices, which ascend.
//
// Shapes       Any number of arrays of any size up to kMaxTopKSize (2^31 - 1), empty ones included,
//              each with a k of its own from 0 to its size; any element-aligned address.
// Order        Of equal magnitudes, also of 0 and -0, those with lower indices are selected. NaN is
//              more than infinity, and NaN are equal: what is not finite is always sent first.
// Precision    Values keep their bits; payloads of NaN are not promised.
// Traffic      The array is read five times on a GPU; on the CPU once where k is less than a
//              twentieth of size, and else six times. Nothing of it is written but what is cleared.
//              The workspace has 6 % of the bytes of an array of float.
// Aliasing     None: what is written may not overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              may go when the call returns.
// Determinism  Same result on every device, for any number of threads and SIMD target. What
//              workspace holds afterwards differs between devices.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, a size that is negative or more than kMaxTopKSize, k below 0 or
//              above size, misaligned address, overlap, memory known as another device's, another
//              dtype.
absl::Status TopK(absl::Span<const TopKSegment> segments, const TopKOptions& options,
                  device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_TOP_K_TOP_K_H_
