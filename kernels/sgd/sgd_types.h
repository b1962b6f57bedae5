#ifndef BRIGADE_KERNELS_SGD_SGD_TYPES_H_
#define BRIGADE_KERNELS_SGD_SGD_TYPES_H_

#include <cstdint>

namespace brigade::kernels {

// One piece of the parameters with its optimizer state; a flat range is a list of one. Device memory.
struct SgdSegment {
  float* param;      // [size] fp32 master
  float* momentum;   // [size] momentum buffer; null in a group without momentum
  const void* grad;  // [size] of SgdOptions::grad_dtype
  void*
      param_copy;  // [size] of SgdOptions::copy_dtype: the rounded new parameter; null without one
  int64_t size;
  int32_t group;  // index of its parameter group
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SGD_SGD_TYPES_H_
