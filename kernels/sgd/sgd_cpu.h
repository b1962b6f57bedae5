#ifndef BRIGADE_KERNELS_SGD_SGD_CPU_H_
#define BRIGADE_KERNELS_SGD_SGD_CPU_H_

#include "absl/types/span.h"
#include "brigade/device/thread_pool.h"
#include "brigade/kernels/internal/cpu_list.h"
#include "brigade/kernels/sgd/sgd_math.h"

namespace brigade::kernels {

// Runs the update in the calling thread and the pool's. The arguments are valid.
template <typename Grad, typename Copy>
void SgdCpu(absl::Span<const PlannedSegment<SgdSegment>> plan, const SgdParameters& parameters,
            device::ThreadPool& pool);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SGD_SGD_CPU_H_
