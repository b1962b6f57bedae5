#ifndef BRIGADE_EXAMPLES_GPT_UNIT_FLOPS_H_
#define BRIGADE_EXAMPLES_GPT_UNIT_FLOPS_H_

#include <vector>

#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/profile/step_profile.h"

namespace brigade::gpt {

// The operations of a step on one rank, by the formulas of profile/flops.h: [stage of the model],
// with nothing for those that other ranks have. The rank's share where ranks share the model or
// texts; what its schedules make again too.
std::vector<profile::UnitSize> UnitsOfStep(const PassShape& shape, const PartPlan& plan,
                                           int64_t micro_batches);

// Of all ranks, without what is made again.
profile::Training TrainingOf(const ModelOptions& model, int64_t texts_of_step);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_UNIT_FLOPS_H_
