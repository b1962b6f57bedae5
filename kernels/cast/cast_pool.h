#ifndef BRIGADE_KERNELS_CAST_CAST_POOL_H_
#define BRIGADE_KERNELS_CAST_CAST_POOL_H_

#include "absl/types/span.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/cast/cast_cpu.h"
#include "brigade/kernels/internal/cpu_list.h"

namespace brigade::kernels {

// Casts a list at once, in the calling thread and the pool's. The arguments are valid.
template <typename Source, typename Target>
void CastCpu(absl::Span<const PlannedSegment<CastSegment>> plan, const float* scale,
             bool accumulate, device::ThreadPool& pool) {
  const bool past_caches =
      CountElements(plan) * static_cast<int64_t>(sizeof(Target)) >= kMinNontemporalBytes;
  ForEachRange(plan, kCpuTile, pool,
               [&](const CastSegment& segment, int64_t begin, int64_t end, int64_t) {
                 CastRange<Source, Target>(segment, scale, accumulate, past_caches, begin, end);
               });
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_POOL_H_
