#ifndef BRIGADE_KERNELS_UPDATE_TYPES_H_
#define BRIGADE_KERNELS_UPDATE_TYPES_H_

#include "brigade/precision/float16.h"

namespace brigade::kernels {

// The type of an optimizer's 16-bit parameter copy where there is none.
struct NoCopy {};

// The (gradient, copy) types that optimizer kernels are built for.
#define BRIGADE_FOR_EACH_UPDATE_TYPE(DO)   \
  DO(float, NoCopy)                        \
  DO(float, precision::Half)               \
  DO(float, precision::BFloat16)           \
  DO(precision::Half, NoCopy)              \
  DO(precision::Half, precision::Half)     \
  DO(precision::Half, precision::BFloat16) \
  DO(precision::BFloat16, NoCopy)          \
  DO(precision::BFloat16, precision::Half) \
  DO(precision::BFloat16, precision::BFloat16)

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_UPDATE_TYPES_H_
