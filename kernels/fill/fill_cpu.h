#ifndef BRIGADE_KERNELS_FILL_FILL_CPU_H_
#define BRIGADE_KERNELS_FILL_FILL_CPU_H_

#include "absl/types/span.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/fill/fill_math.h"
#include "brigade/kernels/internal/cpu_list.h"

namespace brigade::kernels {

// Fills in the calling thread and the pool's. The arguments are valid.
void FillCpu(absl::Span<const PlannedSegment<FillSegment>> plan, FillPattern pattern,
             int64_t element_bytes, device::ThreadPool& pool);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_FILL_FILL_CPU_H_
