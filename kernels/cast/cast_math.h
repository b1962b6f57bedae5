#ifndef BRIGADE_KERNELS_CAST_CAST_MATH_H_
#define BRIGADE_KERNELS_CAST_CAST_MATH_H_

#include "brigade/precision/float16.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// target = source * scale, or target + source * scale: the product and the sum round to fp32, the result
// to the target's type.
template <bool kAccumulate, typename Source, typename Target>
BRIGADE_INLINE Target CastElement(Source source, [[maybe_unused]] Target target, float scale) {
  float x = precision::Mul(static_cast<float>(source), scale);
  if constexpr (kAccumulate) x = precision::Add(static_cast<float>(target), x);
  return static_cast<Target>(x);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_MATH_H_
