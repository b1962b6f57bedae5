#ifndef BRIGADE_ZERO_PLAN_MOVEMENT_H_
#define BRIGADE_ZERO_PLAN_MOVEMENT_H_

#include <cstdint>

#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero {

// Bytes that offload has moved between a rank's tiers, as Traffic counts what it has sent to other
// ranks.
struct Movement {
  // From the device to the host, and back.
  int64_t to_host = 0;
  int64_t from_host = 0;

  bool operator==(const Movement&) const = default;
};

// What moves in each step, the same on every rank. For n elements of a rank's slices, of which the
// offloaded ones count (host_share), in 16 bits and with one micro-batch: gradients 2 n to the host
// (4 n as sums over several micro-batches) and the decision, some 100 bytes; new weights 2 n back.
// With the parameters on the host instead of these 2 n for each gather of each micro-batch: 4 n for
// a forward and a backward pass.
Movement MovementOfStep(const Plan& plan, const ZeroOptions& options);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_PLAN_MOVEMENT_H_
