#ifndef BRIGADE_ZERO_PLAN_MEMORY_MODEL_H_
#define BRIGADE_ZERO_PLAN_MEMORY_MODEL_H_

// How much memory a rank needs, of its device and of the host, before anything is allocated.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/device/memory_stats.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero {

struct MemoryTerm {
  device::Tier tier = device::Tier::kDevice;
  device::Purpose purpose = device::Purpose::kParameters;
  std::string name;
  int64_t bytes = 0;
};

// The memory of a ZeroOptimizer's own with this plan, to the byte: the same on every rank, but
// where groups exchange gradients or moments; constant from Create on. (While parameters go in or
// out there is one bucket in float32 more, and, for a GPU, two chunks on the host while a state is
// loaded.) The terms of the paper are "weights", "gradients", "master" and "moments"; what the
// paper leaves out (padding, pooled buffers, sums over micro-batches, what further users of tied
// parameters have with tied_apart, persistent units, scratch) has terms of its own. With runs there
// are parameter buffers for any two runs that follow each other in a step.
//
// `rank`: in its group. With ZeroOptions::shard_ranks an exchange has what parameters have in this
// rank's slices, which is less where there is padding.
std::vector<MemoryTerm> MemoryOf(const Plan& plan, const ZeroOptions& options, int rank = 0);

// The same with the workspace of the step's collectives, which the communicators allocate for them
// beside the arrays above: "workspace of collectives". `outer`: the groups that
// ZeroOptimizer::Create takes. Errors of Communicator::Resolve.
absl::StatusOr<std::vector<MemoryTerm>> MemoryOf(const Plan& plan, const ZeroOptions& options,
                                                 collectives::Communicator& communicator,
                                                 const OuterGroups& outer = {});

// Of that, what a group's communicator allocates for what the step does as a `role`. Who uses a
// communicator for several roles, or for other calls too, needs the larger of each part
// (collectives::Max). `rank`: as above.
absl::StatusOr<collectives::Workspace> WorkspaceOfStep(const Plan& plan, const ZeroOptions& options,
                                                       collectives::Communicator& group,
                                                       StepGroup role, int rank = 0);

int64_t Total(const std::vector<MemoryTerm>& terms, device::Tier tier);
int64_t Total(const std::vector<MemoryTerm>& terms, device::Tier tier, device::Purpose purpose);

// The paper's formula for 16-bit training with Adam, in bytes per rank for Y parameters and N
// ranks: 16 Y, 4 Y + 12 Y / N, 2 Y + 14 Y / N, 16 Y / N in stages 0 to 3. Source: Rajbhandari et
// al. 2020 (arXiv 1910.02054), section 5.
double PaperBytes(double parameters, int64_t ranks, int stage);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_PLAN_MEMORY_MODEL_H_
