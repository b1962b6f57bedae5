#ifndef BRIGADE_ZERO_INTERNAL_CONSISTENCY_CHECK_H_
#define BRIGADE_ZERO_INTERNAL_CONSISTENCY_CHECK_H_

// What ranks must agree on before they rely on each other. Calls of all ranks; they wait.

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// OK if all ranks give OK; else this rank's error, or without one that of the first rank that has one.
absl::Status AgreeOnStatus(const absl::Status& mine, StepStreams& streams);

// InvalidArgument on all ranks unless options and models are alike: names the first option, parameter or unit that
// differs, and how.
absl::Status AgreeOnPlan(const Plan& plan, const ZeroOptions& options, StepStreams& streams);

// InvalidArgument on all ranks unless they are at the same step.
absl::Status AgreeOnStep(const kernels::StepState& step, StepStreams& streams);

// InvalidArgument naming a parameter whose group the optimizer does not have.
absl::Status CheckGroups(const Plan& plan, const ZeroOptions& options);

// Of model, plan and optimizer; not of the stage.
uint64_t PlanFingerprint(const Plan& plan, const ZeroOptions& options);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_CONSISTENCY_CHECK_H_
