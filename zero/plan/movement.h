#ifndef BRIGADE_ZERO_PLAN_MOVEMENT_H_
#define BRIGADE_ZERO_PLAN_MOVEMENT_H_

#include <cstdint>
#include <string>

#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero {

// Bytes that offload has moved between a rank's tiers, as Traffic counts what it has sent to other
// ranks.
struct Movement {
  // From the device to the host, and back.
  int64_t to_host = 0;
  int64_t from_host = 0;
  // From the file to the host, and back. A step that is skipped reads less, and writes nothing.
  int64_t file_read = 0;
  int64_t file_written = 0;

  bool operator==(const Movement&) const = default;
};

// What moves in each step, the same on every rank. For n elements of a rank's slices, of which the
// offloaded ones count (host_share), in 16 bits and with one micro-batch: gradients 2 n to the host
// (4 n as sums over several micro-batches) and the decision, some 100 bytes; new weights 2 n back.
// With the parameters on the host instead of these 2 n for each gather of each micro-batch: 4 n for
// a forward and a backward pass, 2 n with hpz_ranks, whose second slices are on the device. Of a
// file, with AdamW: 12 n read and 12 n written, fp32 weights included; with the parameters in it, 4
// n and 2 n more.
Movement MovementOfStep(const Plan& plan, const ZeroOptions& options);

// What writing so many bytes in each step means for an SSD, in a line: "3.0 GB are written to files
// in each step: 200000 steps use up an SSD that is made for 600 TB". 600 TB are what a consumer's
// disk of 1 TB is commonly made for.
std::string WearOf(int64_t bytes_written_per_step);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_PLAN_MOVEMENT_H_
