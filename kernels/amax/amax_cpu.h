#ifndef BRIGADE_KERNELS_AMAX_AMAX_CPU_H_
#define BRIGADE_KERNELS_AMAX_AMAX_CPU_H_

#include <cstdint>

#include "brigade/kernels/amax/amax_math.h"

namespace brigade::kernels {

// The largest absolute value among the elements [begin, end), as bits, in the calling thread: what
// each thread of Amax (amax.h) does. LargerBits joins the ranges', in any order, and AmaxOf makes
// the result. Made for the threads that a program has.
//
// Ranges  Any cut gives the same bits; an empty range gives 0.
// Types   Instantiated for float, Half and BFloat16.
template <typename T>
int32_t AmaxRange(const T* array, float scale, int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_AMAX_AMAX_CPU_H_
