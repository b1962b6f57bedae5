#ifndef BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_MATH_H_
#define BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_MATH_H_

// What 0/1 Adam does beside Adam.
//
// Source       Lu et al. 2022 (arXiv 2202.06009), algorithm 1; tests/spec/stages.h.

#include <cstdint>

namespace brigade::kernels {

// A piece of the gradients that ranks have exchanged, with its second moments. Device memory.
struct ZeroOneMask {
  const float* second_moment;
  float* gradient;
  int64_t size;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_MATH_H_
