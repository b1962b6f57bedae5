#ifndef BRIGADE_RECOMPUTE_PLANNER_H_
#define BRIGADE_RECOMPUTE_PLANNER_H_

// Which activations of a chain are kept from its forward pass to its backward pass, and which are
// computed again. Five policies:
//
//   none           PlanNone             everything is saved
//   block          PlanBlocks           only the input of each stage is kept
//   selective      PlanSelective        each stage saves the option that the caller names
//   segments(k)    PlanSegments         only the input of every k-th stage is kept
//                  PlanStashedSegments  the same on a slower tier, say the host
//   budget(bytes)  PlanBudget           the least time within the budget
//
// All of their schedules are persistent: what is kept stays until its backward pass. With others
// less time may be enough for the same budget, but these place all memory on a stack, without holes
// (operation.h).
//
// Determinism  The same chain gives the same plan: ranks that give the same one need not exchange
//              plans.
// Errors       Those of Validate (chain.h).

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/operation.h"

namespace brigade::recompute {

struct Plan {
  std::vector<Operation> operations = {};
  // The most memory that the chain takes at a time (Chain says what counts).
  int64_t peak_bytes = 0;
  // Of all forward and backward passes, in the unit of the chain.
  double time = 0;
};

// No stage is computed again, but for what the fastest option does itself. Each stage saves the
// option of the least backward_time; of equal ones that of the fewest saved_bytes, then the first.
absl::StatusOr<Plan> PlanNone(const Chain& chain);

// PlanSegments of one stage.
absl::StatusOr<Plan> PlanBlocks(const Chain& chain);

// Stage s saves options[s]. InvalidArgument unless there is one for each stage that the stage has.
absl::StatusOr<Plan> PlanSelective(const Chain& chain, absl::Span<const int> options);

// The chain is cut into segments of `stages_per_segment`, the last of which may be shorter. The
// forward pass keeps the input of each; then from the last to the first each segment goes forward
// once more, saving the options of PlanNone, and backward. The last goes forward only once.
// A stage that is elsewhere (chain.h) is a segment of its own, so that all others go forward twice.
// InvalidArgument unless stages_per_segment is 1 at least.
// Source: Chen, Xu, Zhang, Guestrin 2016 (arXiv 1604.06174).
absl::StatusOr<Plan> PlanSegments(const Chain& chain, int stages_per_segment);

// PlanSegments whose kept inputs are on a slower tier: each is written as the forward pass goes
// over it, and read back while the segment behind it goes backward, so that two of them are in
// memory at a time, however many segments there are. Of the last segment, which goes backward at
// once, the input stays in memory. The time of the copies, which run beside, is not counted. Errors
// of PlanSegments.
absl::StatusOr<Plan> PlanStashedSegments(const Chain& chain, int stages_per_segment);

// The least budget_bytes that PlanBudget takes.
absl::StatusOr<int64_t> LeastBudget(const Chain& chain);

// The fastest persistent schedule whose peak_bytes are at most budget_bytes, for chains in which no
// gradient is larger than the output that it belongs to, or all gradients have one size. In others
// there may be a faster one that goes forward once more before a part has gone backward, while a
// smaller gradient is in memory.
//
// Precision    Exact where the sizes are multiples of a unit of which the budget has few: a table
//              of the times has at most kMaxBudgetUnits columns and kMaxTableEntries numbers. Else
//              a larger unit is taken, to which sizes count rounded up and the budget rounded down:
//              the plan may be slower than the best, but it never exceeds the budget, is never
//              slower than a plan that fits of segments, or of one option for all stages that have
//              it, and exists from LeastBudget on.
// Cost         L^3 / 6 steps for L stages and each unit of the budget, and up to 128 MiB for the
//              table; README.md has times.
// Determinism  Of schedules of the same time the one that saves rather than computes again, saves
//              the first option, and keeps the input of the earliest stage.
// Errors       InvalidArgument naming the budget and the least one where it is too small.
// Source       The dynamic program of arXiv 1911.13214, with the options of arXiv 2307.01236.
absl::StatusOr<Plan> PlanBudget(const Chain& chain, int64_t budget_bytes);

// Both untuned.
inline constexpr int64_t kMaxBudgetUnits = 4096;
// Of 8 bytes.
inline constexpr int64_t kMaxTableEntries = int64_t{1} << 24;

}  // namespace brigade::recompute

#endif  // BRIGADE_RECOMPUTE_PLANNER_H_
