#ifndef BRIGADE_ZERO_OFFLOAD_H_
#define BRIGADE_ZERO_OFFLOAD_H_

#include <cstdint>

#include "brigade/device/file/file_options.h"
#include "brigade/device/memory_stats.h"

namespace brigade::zero {

// What does not stay in the device's memory. It changes memory, time and what moves between the
// tiers (plan/movement.h), and, but for delay_update, no bit of the training.
// Source: Ren et al. 2021, ZeRO-Offload (arXiv 2101.06840); Rajbhandari et al. 2021, ZeRO-Infinity
// (arXiv 2104.07857).
struct OffloadOptions {
  // Stages 1 to 3: where the fp32 master and the moments are; unless that is kDevice, the update is
  // the host's. To the host gradients go bucket by bucket as soon as they are reduced, and new
  // weights come back bucket by bucket as soon as they are updated. The gradients' check and the
  // decision stay on the device. Of kFile the host has `chunk_buffers` chunks, which are read,
  // updated and written beside each other.
  device::Tier optimizer_state = device::Tier::kDevice;
  // Of kHost: the share of the optimizer state's elements that is on the host, counted in whole
  // buckets from those whose gradients are complete first, which the next forward pass needs last.
  // The update of the rest is the device's, beside the host's.
  double host_share = 1.0;
  // Stage 3, with the whole optimizer state on the host or in a file: where this rank's slices of
  // the working weights are. Each gather then begins with a copy to the device. kFile: with the
  // optimizer state in the file too, and without delay_update.
  device::Tier parameters = device::Tier::kDevice;

  // Of kFile: the file's directory and engine, on a local disk of which nobody else needs the
  // speed. Each rank has a file of its own there, with two slots for everything in it, so that a
  // step which is skipped or fails changes nothing. It has no name: it ends with the process,
  // however that ends (CrashSafety::kNone, and no other); a training is resumed from checkpoints.
  // `operations` is the optimizer's own choice; `checksums` are compared in each step, not when the
  // state is copied (CopyState) or exported.
  device::FileOptions file = {};
  // Elements of a chunk, as far as a bucket's slice has so many, and how many chunks are in memory:
  // one is read while another is updated and a third is written. DeepSpeed's sub_group_size and
  // buffer_count. At least 2 buffers.
  int64_t chunk_elements = int64_t{4} << 20;
  int chunk_buffers = 3;
  // What the file may take of the disk; 0: what is free there.
  int64_t file_limit_bytes = 0;

  // With the whole optimizer state on the host or in a file: passes do not wait for the update.
  // Each step's weights are those that the update before the last one left, with w(t + 1) = U(w(t),
  // g(t - 1)), and the host updates beside the passes. Another training: tests/spec/stages.h
  // defines its bits. Not for the first delay_warm_up steps of a training, in which weights change
  // fast. Where a state is loaded, its weights are those of its master; the next ones are delayed
  // again.
  bool delay_update = false;
  int64_t delay_warm_up = 40;

  // Beside a GPU: the threads that the host's update may use; 0: this rank's share of those of its
  // host (collectives/host_threads.h). On a CPU the update has the context's threads.
  int host_threads = 0;

  // Whether anything is not on the device.
  bool enabled() const { return optimizer_state != device::Tier::kDevice; }
  bool file_state() const { return optimizer_state == device::Tier::kFile; }
  bool host_parameters() const { return parameters == device::Tier::kHost; }
  bool file_parameters() const { return parameters == device::Tier::kFile; }

  bool operator==(const OffloadOptions&) const = default;
};

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_OFFLOAD_H_
