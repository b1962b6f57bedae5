#ifndef BRIGADE_KERNELS_CAST_CAST_MATH_H_
#define BRIGADE_KERNELS_CAST_CAST_MATH_H_

#include <cstdint>

#include "brigade/precision/float16.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// One pair of arrays. Device memory.
struct CastSegment {
  // [size] of CastOptions::source_dtype.
  const void* source;
  // [size] of CastOptions::target_dtype.
  void* target;
  int64_t size;
};

// The (source, target) types that the kernels are built for.
#define BRIGADE_FOR_EACH_CAST_TYPE(DO)     \
  DO(float, float)                         \
  DO(float, precision::Half)               \
  DO(float, precision::BFloat16)           \
  DO(precision::Half, float)               \
  DO(precision::Half, precision::Half)     \
  DO(precision::Half, precision::BFloat16) \
  DO(precision::BFloat16, float)           \
  DO(precision::BFloat16, precision::Half) \
  DO(precision::BFloat16, precision::BFloat16)

// target = source * scale, or target + source * scale: the product and the sum round to fp32, the
// result to the target's type.
template <bool kAccumulate, typename Source, typename Target>
BRIGADE_INLINE Target CastElement(Source source, [[maybe_unused]] Target target, float scale) {
  float x = precision::Mul(static_cast<float>(source), scale);
  if constexpr (kAccumulate) x = precision::Add(static_cast<float>(target), x);
  return static_cast<Target>(x);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_MATH_H_
