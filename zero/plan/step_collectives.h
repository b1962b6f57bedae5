#ifndef BRIGADE_ZERO_PLAN_STEP_COLLECTIVES_H_
#define BRIGADE_ZERO_PLAN_STEP_COLLECTIVES_H_

// The collectives of a training step, known before the first one runs: what traffic and memory of
// communication follow from.

#include <cstdint>
#include <vector>

#include "brigade/collectives/collective.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/plan/traffic.h"

namespace brigade::zero::internal {

// A collective of all ranks, how often a step makes it, and the field of Traffic that counts it.
struct StepCollective {
  collectives::CollectiveSignature signature;
  int64_t times = 1;
  int64_t Traffic::*traffic = nullptr;
};

// The sum of gradients, of which each rank receives its part of `count` elements; and the all-gather
// of such parts.
collectives::CollectiveSignature ReduceScatterOf(const ZeroOptions& options, int64_t count,
                                                 precision::DType dtype);
collectives::CollectiveSignature AllGatherOf(const ZeroOptions& options, int64_t count,
                                             precision::DType dtype);

// In no particular order.
std::vector<StepCollective> CollectivesOfStep(const Plan& plan, const ZeroOptions& options);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_PLAN_STEP_COLLECTIVES_H_
