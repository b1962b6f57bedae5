#ifndef BRIGADE_KERNELS_ADAM_ADAM_CPU_H_
#define BRIGADE_KERNELS_ADAM_ADAM_CPU_H_

#include "absl/types/span.h"
#include "brigade/device/thread_pool.h"
#include "brigade/kernels/adam/adam_math.h"
#include "brigade/kernels/internal/cpu_list.h"

namespace brigade::kernels {

// Runs the update in the calling thread and the pool's. The arguments are valid.
template <typename Grad, typename Copy>
void AdamCpu(absl::Span<const PlannedSegment<AdamSegment>> plan, const AdamParameters& parameters,
             device::ThreadPool& pool);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM_ADAM_CPU_H_
