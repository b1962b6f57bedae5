#ifndef BRIGADE_ZERO_OFFLOAD_H_
#define BRIGADE_ZERO_OFFLOAD_H_

#include "brigade/device/memory_stats.h"

namespace brigade::zero {

// What does not stay in the device's memory. It changes memory, time and what moves between the
// tiers (plan/movement.h), and no bit of the training.
// Source: Ren et al. 2021, ZeRO-Offload (arXiv 2101.06840); Rajbhandari et al. 2021, ZeRO-Infinity
// (arXiv 2104.07857).
struct OffloadOptions {
  // Stages 1 to 3: where the fp32 master and the moments are, and with them the update: kDevice or
  // kHost. To the host gradients go bucket by bucket as soon as they are reduced, and new weights
  // come back bucket by bucket as soon as they are updated. The gradients' check and the decision
  // stay on the device.
  device::Tier optimizer_state = device::Tier::kDevice;
  // Of kHost: the share of the optimizer state's elements that is on the host, counted in whole
  // buckets from those whose gradients are complete first, which the next forward pass needs last.
  // The update of the rest is the device's, beside the host's.
  double host_share = 1.0;
  // Stage 3, with the whole optimizer state on the host: where this rank's slices of the working
  // weights are, kDevice or kHost. Each gather then begins with a copy to the device.
  device::Tier parameters = device::Tier::kDevice;

  // Whether anything is not on the device.
  bool enabled() const { return optimizer_state != device::Tier::kDevice; }
  bool host_parameters() const { return parameters == device::Tier::kHost; }

  bool operator==(const OffloadOptions&) const = default;
};

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_OFFLOAD_H_
