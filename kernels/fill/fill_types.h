#ifndef BRIGADE_KERNELS_FILL_FILL_TYPES_H_
#define BRIGADE_KERNELS_FILL_FILL_TYPES_H_

#include <cstdint>

namespace brigade::kernels {

// One array. Device memory.
struct FillSegment {
  void* data;  // [size] of the call's dtype
  int64_t size;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_FILL_FILL_TYPES_H_
