#ifndef BRIGADE_ZERO_OFFLOAD_H_
#define BRIGADE_ZERO_OFFLOAD_H_

#include <cstdint>

#include "brigade/device/memory_stats.h"

namespace brigade::zero {

// What does not stay in the device's memory. It changes memory, time and what moves between the
// tiers (plan/movement.h), and, but for delay_update, no bit of the training.
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

  // With the whole optimizer state on the host: passes do not wait for the update. Each step's
  // weights are those that the update before the last one left, w(t + 1) = U(w(t), g(t - 1)), and
  // the host updates beside the passes. Another training: tests/spec/stages.h defines its bits.
  // Not for the first delay_warm_up steps of a training, in which weights change fast. Where a
  // state is loaded, its weights are those of its master; the next ones are delayed again.
  bool delay_update = false;
  int64_t delay_warm_up = 40;

  // Beside a GPU: the threads that the host's update may use; 0: all cores. Ranks that share a host
  // should share them out. On a CPU the update has the context's threads.
  int host_threads = 0;

  // Whether anything is not on the device.
  bool enabled() const { return optimizer_state != device::Tier::kDevice; }
  bool host_parameters() const { return parameters == device::Tier::kHost; }

  bool operator==(const OffloadOptions&) const = default;
};

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_OFFLOAD_H_
