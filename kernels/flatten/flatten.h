#ifndef BRIGADE_KERNELS_FLATTEN_FLATTEN_H_
#define BRIGADE_KERNELS_FLATTEN_FLATTEN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

// A tensor and its place in a flat buffer.
struct FlatSlot {
  // [size] of FlattenOptions::tensor_dtype, device memory.
  void* tensor;
  // In elements.
  int64_t size;
  // In elements, from the flat buffer's begin.
  int64_t offset;
};

// A contiguous array that holds many tensors. Device memory.
struct FlatBuffer {
  void* data = nullptr;
  // In elements.
  int64_t size = 0;
  // float32, float16 or bfloat16.
  precision::DType dtype = precision::DType::kFloat32;
};

struct FlattenOptions {
  // float32, float16 or bfloat16.
  precision::DType tensor_dtype = precision::DType::kFloat32;
  // Device memory: a factor on every element; null means 1.
  const float* scale = nullptr;
  // Whether to add to what is there instead of overwriting it.
  bool accumulate = false;
};

// Flatten copies tensors into their places in a flat buffer, Unflatten copies them back out: to =
// from * scale, or to += from * scale, with a cast where the types differ. What lies between the
// places is not touched: whoever lays out padding zeroes it.
//
// Shapes       Any number of slots of any size, empty ones included; any element-aligned tensor,
//              any offset. On a GPU a tensor whose place lies at another distance from a sector of
//              32 bytes than itself moves by single elements: offsets that are multiples of 16
//              elements avoid that.
// Precision    Product and sum round to fp32, the result to nearest even in the type written.
// Traffic      As Cast (kernels/cast/cast.h): 2 * size * sizeof(T) bytes where the types agree.
// Aliasing     None: nothing written may overlap anything else; in particular places may not
//              overlap.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. Slots and
//              options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads, SIMD target and cut into
//              slots, payloads of NaN aside.
// Errors       InvalidArgument naming slot ("segment"), argument and value, before anything is
//              enqueued: as Cast, and a place that reaches outside of the flat buffer.
absl::Status Flatten(absl::Span<const FlatSlot> slots, const FlattenOptions& options,
                     const FlatBuffer& flat, device::Stream& stream);
absl::Status Unflatten(const FlatBuffer& flat, absl::Span<const FlatSlot> slots,
                       const FlattenOptions& options, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_FLATTEN_FLATTEN_H_
