// What a chain of two stages keeps if nothing is computed again.
#include <cstdio>

#include "absl/status/statusor.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/planner.h"

int main() {
  namespace recompute = brigade::recompute;
  recompute::Chain chain;
  for (int stage = 0; stage < 2; ++stage) {
    chain.stages.push_back({.forward_time = 1,
                            .output_bytes = 256,
                            .gradient_bytes = 256,
                            .options = {{.name = "all", .saved_bytes = 1024, .backward_time = 2}}});
  }
  const absl::StatusOr<recompute::Plan> plan = recompute::PlanNone(chain);
  std::printf("%s\n", plan.status().ToString().c_str());
  return plan.ok() ? 0 : 1;
}
