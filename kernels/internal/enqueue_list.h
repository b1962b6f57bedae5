#ifndef BRIGADE_KERNELS_INTERNAL_ENQUEUE_LIST_H_
#define BRIGADE_KERNELS_INTERNAL_ENQUEUE_LIST_H_

// The last thing that a call on a list does: hand it to the CPU's loop or to the CUDA launcher.

#include <cstdint>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/internal/cpu_list.h"

#if BRIGADE_CUDA
#include <driver_types.h>

#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::kernels {

// On a CPU stream enqueues on_cpu(plan, pool), with the plan of the segments in tiles of `cpu_tile`
// elements; it must hold all else that it needs, and returns a status or nothing. On a CUDA stream
// calls on_cuda(cudaStream_t) -> cudaError_t at once.
//
// on_cuda must be generic, `[&](auto cuda_stream) { return LaunchX(..., cuda_stream); }`: where
// there is no CUDA toolkit nobody instantiates it, and the launcher need not be declared.
template <typename Segment, typename OnCpu, typename OnCuda>
absl::Status EnqueueList(const device::Operation& operation, absl::Span<const Segment> segments,
                         int64_t cpu_tile, device::Stream& stream, OnCpu on_cpu,
                         [[maybe_unused]] const OnCuda& on_cuda) {
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(on_cuda(static_cast<cudaStream_t>(cuda_stream)), operation.name);
    });
  }
#endif
  return stream.Enqueue(operation, PlanSegments(segments, cpu_tile),
                        [on_cpu = std::move(on_cpu)](absl::Span<const PlannedSegment<Segment>> plan,
                                                     device::ThreadPool& pool) {
                          if constexpr (std::is_void_v<decltype(on_cpu(plan, pool))>) {
                            on_cpu(plan, pool);
                            return absl::OkStatus();
                          } else {
                            return on_cpu(plan, pool);
                          }
                        });
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_ENQUEUE_LIST_H_
