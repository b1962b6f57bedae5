#ifndef BRIGADE_KERNELS_ADAM_ADAM_TYPES_H_
#define BRIGADE_KERNELS_ADAM_ADAM_TYPES_H_

#include <cstdint>

namespace brigade::kernels {

// One piece of the parameters with its optimizer state; a flat range is a list of one. Device memory.
struct AdamSegment {
  float* param;      // [size] fp32 master
  float* m;          // [size] first moment, exp_avg
  float* v;          // [size] second moment, exp_avg_sq
  const void* grad;  // [size] of AdamOptions::grad_dtype
  void*
      param_copy;  // [size] of AdamOptions::copy_dtype: the rounded new parameter; null without one
  int64_t size;
  int32_t group;  // index of its parameter group
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM_ADAM_TYPES_H_
