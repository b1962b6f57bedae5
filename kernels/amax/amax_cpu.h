#ifndef BRIGADE_KERNELS_AMAX_AMAX_CPU_H_
#define BRIGADE_KERNELS_AMAX_AMAX_CPU_H_

#include <cstdint>

#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/amax/amax_math.h"

namespace brigade::kernels {

// Looks in the calling thread and the pool's. The arguments are valid.
template <typename T>
AmaxResult AmaxCpu(const T* array, int64_t size, const float* scale, AmaxWorkspace& workspace,
                   device::ThreadPool& pool);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_AMAX_AMAX_CPU_H_
