#include "brigade/recompute/curve.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/recompute/planner.h"

namespace brigade::recompute {

absl::StatusOr<std::vector<CurvePoint>> BudgetCurve(const Chain& chain, int max_points) {
  if (max_points < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_points is ", max_points, "; it must be at least 2"));
  }
  BRIGADE_ASSIGN_OR_RETURN(const Plan none, PlanNone(chain));
  BRIGADE_ASSIGN_OR_RETURN(const int64_t least, LeastBudget(chain));
  const int64_t range = std::max<int64_t>(0, none.peak_bytes - least);
  const int64_t step =
      std::max(kAlignmentBytes, (range + max_points - 2) / std::max(1, max_points - 1));
  std::vector<CurvePoint> points;
  int64_t budget = std::max(none.peak_bytes, least);
  while (true) {
    BRIGADE_ASSIGN_OR_RETURN(const Plan plan, PlanBudget(chain, budget));
    // A plan that takes as long and needs less is better, and where sizes are rounded up one may
    // even be faster.
    while (!points.empty() && points.back().time >= plan.time) points.pop_back();
    points.push_back({plan.peak_bytes, plan.time});
    if (plan.peak_bytes <= least) return points;
    budget = std::max(least, plan.peak_bytes - step);
  }
}

std::vector<Policy> PoliciesWithoutBudget(int stages) {
  using Kind = Policy::Kind;
  std::vector<Policy> policies = {
      {.kind = Kind::kNone}, {.kind = Kind::kBlock}, {.kind = Kind::kSelective}};
  const auto segments = [&](int length) { return (stages + length - 1) / length; };
  for (int length = 2; length < stages; ++length) {
    if (segments(length) == segments(length - 1)) continue;
    policies.push_back({.kind = Kind::kSegments, .stages_per_segment = length});
  }
  return policies;
}

}  // namespace brigade::recompute
