#ifndef BRIGADE_KERNELS_CAST_CAST_CPU_H_
#define BRIGADE_KERNELS_CAST_CAST_CPU_H_

#include "absl/types/span.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/internal/cpu_list.h"

namespace brigade::kernels {

// Runs the cast in the calling thread and the pool's. The arguments are valid.
template <typename Source, typename Target>
void CastCpu(absl::Span<const PlannedSegment<CastSegment>> plan, const float* scale,
             bool accumulate, device::ThreadPool& pool);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_CPU_H_
