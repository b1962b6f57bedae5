#ifndef BRIGADE_ZERO_INTERNAL_CONSISTENCY_CHECK_H_
#define BRIGADE_ZERO_INTERNAL_CONSISTENCY_CHECK_H_

// Checks that all ranks have the same options, model and state. Calls of all ranks, on the host:
// they wait for the other ranks, and need no device memory.

#include "absl/status/status.h"
#include "brigade/collectives/communicator.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// InvalidArgument on all ranks unless options and models are the same: names the first option,
// parameter or unit that differs, and its values.
absl::Status AgreeOnPlan(const Plan& plan, const ZeroOptions& options,
                         collectives::Communicator& communicator);

// The same of the ranks with one place, `rank`, in several groups that share a state each; also
// unless they have the same place.
absl::Status AgreeOnPlanBetween(const Plan& plan, const ZeroOptions& options, int rank,
                                collectives::Communicator& between);

// The same of options that are not a part's, and of the number of types of gradients, in a world of
// groups that hold parts of a model.
absl::Status AgreeOnOptions(const Plan& plan, const ZeroOptions& options,
                            collectives::Communicator& world);

// InvalidArgument on all ranks unless they are at the same step.
absl::Status AgreeOnStep(const kernels::StepState& step, collectives::Communicator& communicator);

// InvalidArgument naming a parameter whose group the optimizer does not have.
absl::Status CheckGroups(const Plan& plan, const ZeroOptions& options);

// InvalidArgument for a chunk without units, and for a tied parameter with users in several chunks,
// whose parts of a gradient have to be apart.
absl::Status CheckChunks(const Plan& plan, const ZeroOptions& options);

// InvalidArgument unless there is a communicator of two ranks, in a world, exactly if the model has
// a trainable parameter that is tied outside.
absl::Status CheckTied(const Plan& plan, const OuterGroups& outer);

// InvalidArgument on all ranks of the world, naming the parameter, unless one half of the ranks
// that have one tied outside count it: a rank whose partner does not have it would wait for that.
absl::Status AgreeOnPartners(const Plan& plan, collectives::Communicator& world);

// InvalidArgument naming a trainable parameter that is tied outside, where ranks exchange their own
// gradients: the other group's part would have to be added before.
absl::Status CheckExchanges(const Plan& plan, const ZeroOptions& options);

// A call of the two ranks of `tied`: InvalidArgument on both unless their trainable parameters that
// are tied outside are the same, and each is counted by one of the two. `rank`: in its group.
absl::Status AgreeOnTied(const Plan& plan, int rank, collectives::Communicator& tied);

// InvalidArgument unless backward_units are empty, or units of the model, whose last uses are all
// units in reverse order.
absl::Status CheckBackwardUnits(const Plan& plan, const ZeroOptions& options);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_CONSISTENCY_CHECK_H_
