#ifndef BRIGADE_KERNELS_INTERNAL_UPDATE_CPU_H_
#define BRIGADE_KERNELS_INTERNAL_UPDATE_CPU_H_

// The update of an optimizer over a list on the CPU, for the policies that update_tile.h describes.

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/internal/cpu_list.h"
#include "brigade/kernels/step_control/one_step.h"

namespace brigade::kernels {

// The step's values, which are only known as the work runs: FailedPrecondition if those that a
// segment needs were not filled. For a step that is not skipped.
template <typename Policy, typename Segment>
absl::Status CheckStep(absl::string_view operation, absl::Span<const PlannedSegment<Segment>> plan,
                       const typename Policy::Parameters& parameters) {
  for (const auto& planned : plan) {
    const int32_t group = planned.segment.group;
    const StepError error = FindStepError<Policy>(parameters, group);
    if (error == StepError::kNone) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        operation, ": ",
        error == StepError::kStateNotFilled ? "state" : absl::StrCat("group_steps[", group, "]"),
        " ", Describe(error), "; StepControl writes it"));
  }
  return absl::OkStatus();
}

// Calls range(segment, parameters, begin, end), the folder's AdamRange or SgdRange, in the calling
// thread and the pool's. The arguments are valid but for the step's values: CheckStep, with nothing
// changed.
template <typename Policy, typename Range>
absl::Status UpdateCpu(absl::string_view operation,
                       absl::Span<const PlannedSegment<typename Policy::Segment>> plan,
                       const typename Policy::Parameters& parameters, device::ThreadPool& pool,
                       const Range& range) {
  if (SkipsStep(parameters)) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckStep<Policy>(operation, plan, parameters));
  ForEachRange(plan, kCpuTile, pool, [&](const auto& segment, int64_t begin, int64_t end, int64_t) {
    static_cast<void>(range(segment, parameters, begin, end));
  });
  return absl::OkStatus();
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_UPDATE_CPU_H_
