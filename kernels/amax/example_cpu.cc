// The largest absolute value of an array of the CPU, in the calling thread. It needs amax_cpu.cc
// and simd.cc with what they include, and nothing else.
//
// Prints: amax 7.0, all finite

#include <cstdint>
#include <cstdio>

#include "brigade/kernels/amax/amax_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  const float array[4] = {1, -7, 3, 4};
  // Any threads may take any parts of [0, size); LargerBits joins what they find.
  const int32_t bits = bk::LargerBits(bk::AmaxRange(array, /*scale=*/1.0f, 0, 2),
                                      bk::AmaxRange(array, /*scale=*/1.0f, 2, 4));
  const bk::AmaxResult result = bk::AmaxOf(bits);
  std::printf("amax %.1f, %s\n", result.value,
              result.non_finite != 0 ? "not finite" : "all finite");
}
