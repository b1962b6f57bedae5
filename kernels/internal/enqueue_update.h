#ifndef BRIGADE_KERNELS_INTERNAL_ENQUEUE_UPDATE_H_
#define BRIGADE_KERNELS_INTERNAL_ENQUEUE_UPDATE_H_

// The last thing that an optimizer's call on a list does.

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/internal/update_cpu.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/list_arguments.h"

namespace brigade::kernels {

// Enqueues the update of a list whose arguments are valid. `name` is a literal. range_of(grad,
// copy) gives the CPU's loop for these element types, launch(grad, copy, ...) calls the launcher
// for them with what follows, its arguments: generic in all, as EnqueueList asks.
template <typename Policy, typename Options, typename RangeOf, typename Launch>
absl::Status EnqueueUpdate(const char* name, const ListArguments& arguments,
                           absl::Span<const typename Policy::Segment> segments,
                           const Options& options, const typename Policy::Parameters& parameters,
                           device::Stream& stream, const RangeOf& range_of, const Launch& launch) {
  const device::Operation operation = {name, arguments.accesses()};
  absl::Status status;
  VisitUpdateTypes(options.grad_dtype, options.copy_dtype, [&](auto grad, auto copy) {
    status = EnqueueList(
        operation, segments, kCpuTile, stream,
        [name, parameters, range = range_of(grad, copy)](auto plan, auto& pool) {
          return UpdateCpu<Policy>(name, plan, parameters, pool, range);
        },
        [&](auto cuda_stream) {
          return launch(grad, copy, segments.data(), segments.size(), parameters, cuda_stream);
        });
  });
  return status;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_ENQUEUE_UPDATE_H_
