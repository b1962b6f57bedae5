#ifndef BRIGADE_KERNELS_CAST_CAST_TYPES_H_
#define BRIGADE_KERNELS_CAST_CAST_TYPES_H_

#include <cstdint>

#include "brigade/precision/float16.h"

namespace brigade::kernels {

// One pair of arrays. Device memory.
struct CastSegment {
  const void* source;  // [size] of CastOptions::source_dtype
  void* target;        // [size] of CastOptions::target_dtype
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

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_TYPES_H_
