#ifndef BRIGADE_KERNELS_AMAX_AMAX_H_
#define BRIGADE_KERNELS_AMAX_AMAX_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/amax/amax_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct AmaxOptions {
  // float32, float16 or bfloat16.
  precision::DType dtype = precision::DType::kFloat32;
  // Device memory: a factor on every element; null means 1.
  const float* scale = nullptr;
};

// *result = {max |array[i] * scale|, whether that is infinite or NaN}.
//
// Shapes       Any size, 0 included; any element-aligned address.
// Precision    Products round to fp32, as those of Cast: with the same scale the result is that of
//              what Cast writes to a float32 target. NaN stays NaN, infinity stays infinity.
// Traffic      The array's bytes, read once.
// Aliasing     workspace and result may not overlap anything.
// Stream       Enqueued on `stream`; allocates nothing and never waits.
// Determinism  Same bits on every device, for any number of threads and SIMD target, payloads of
//              NaN aside.
// Errors       InvalidArgument naming argument and value, before anything is enqueued: null with
//              elements, negative size, misaligned address, overlap, memory known as another
//              device's, another dtype.
absl::Status Amax(const void* array, int64_t size, const AmaxOptions& options,
                  AmaxWorkspace* workspace, AmaxResult* result, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_AMAX_AMAX_H_
