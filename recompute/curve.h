#ifndef BRIGADE_RECOMPUTE_CURVE_H_
#define BRIGADE_RECOMPUTE_CURVE_H_

// Memory against time, for all budgets: what it costs to have less memory.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/policy.h"

namespace brigade::recompute {

// Of a plan.
struct CurvePoint {
  int64_t peak_bytes = 0;
  double time = 0;

  bool operator==(const CurvePoint&) const = default;
};

// The plans of PlanBudget for all budgets, from the peak of PlanNone down to LeastBudget: peaks
// fall and times rise, and the plan of a budget is the first one that fits. Where there would be
// more than `max_points` of them some are left out: then each is at least the range of budgets by
// max_points - 1 below the one before, but for the last.
//
// Cost         At most max_points calls of PlanBudget.
// Errors       Those of PlanBudget; InvalidArgument unless max_points is 2 at least.
absl::StatusOr<std::vector<CurvePoint>> BudgetCurve(const Chain& chain, int max_points);

// Those to compare with the curve, for a chain of so many stages: none, block, selective, and of
// the segments the shortest ones of each number of them, two at least.
std::vector<Policy> PoliciesWithoutBudget(int stages);

}  // namespace brigade::recompute

#endif  // BRIGADE_RECOMPUTE_CURVE_H_
