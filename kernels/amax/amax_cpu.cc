// The largest absolute value of a range on the CPU: reads the array once, 4 or 2 bytes an element.

#include "brigade/kernels/amax/amax_cpu.h"

#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

template <typename T>
int32_t AmaxRange(const T* array, float scale, int64_t begin, int64_t end) {
  int32_t largest = 0;
  RunSimd([&]() BRIGADE_SIMD_BODY {
    int32_t bits = 0;
    for (int64_t i = begin; i < end; ++i) {
      bits = LargerBits(bits, MagnitudeBits(static_cast<float>(array[i]), scale));
    }
    largest = bits;
  });
  return largest;
}

#define BRIGADE_INSTANTIATE(T) template int32_t AmaxRange<T>(const T*, float, int64_t, int64_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
