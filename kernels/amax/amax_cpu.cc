// The largest absolute value on the CPU: reads the array once, 4 or 2 bytes an element.

#include "brigade/kernels/amax/amax_cpu.h"

#include <algorithm>

#include "brigade/kernels/amax/amax_math.h"
#include "brigade/kernels/internal/cpu_list.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

template <typename T>
AmaxResult AmaxCpu(const T* array, int64_t size, const float* scale_pointer,
                   AmaxWorkspace& workspace, device::ThreadPool& pool) {
  const float scale = scale_pointer == nullptr ? 1.0f : *scale_pointer;
  const int64_t share = std::max(kCpuTile, CeilDiv(size, kMaxAmaxParts));
  pool.ParallelRanges(size, share, [&](int64_t begin, int64_t end) {
    int32_t largest = 0;
    RunSimd([&]() BRIGADE_SIMD_BODY {
      int32_t bits = 0;
      for (int64_t i = begin; i < end; ++i) {
        bits = LargerBits(bits, MagnitudeBits(static_cast<float>(array[i]), scale));
      }
      largest = bits;
    });
    workspace.parts[begin / share] = largest;
  });
  int32_t largest = 0;
  for (int64_t i = 0; i < CeilDiv(size, share); ++i) {
    largest = LargerBits(largest, workspace.parts[i]);
  }
  return AmaxOf(largest);
}

#define BRIGADE_INSTANTIATE(T)                                                    \
  template AmaxResult AmaxCpu<T>(const T*, int64_t, const float*, AmaxWorkspace&, \
                                 device::ThreadPool&);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
