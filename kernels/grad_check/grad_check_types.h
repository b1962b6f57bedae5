#ifndef BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_TYPES_H_
#define BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_TYPES_H_

#include <cstdint>

namespace brigade::kernels {

// One piece of the gradients; a flat range is a list of one. Device memory.
struct GradSegment {
  const void* grad;  // [size] of the list's dtype
  int64_t size;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_TYPES_H_
