#ifndef BRIGADE_ZERO_RANK_STATE_H_
#define BRIGADE_ZERO_RANK_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::zero {

// The part of a training run that one rank owns: the same in every stage. Host memory.
struct RankState {
  struct BucketSlice {
    // fp32, [slice] each: the master (of a frozen bucket the weights), then the moments.
    std::vector<std::vector<float>> arrays;
  };

  // Of model, plan and optimizer; not of the stage.
  uint64_t plan_hash = 0;
  int32_t rank = 0;
  int32_t ranks = 1;
  kernels::StepState step = {};
  std::vector<BucketSlice> buckets;
};

// To and from a plain file of this machine's byte order, with a checksum. The file is written
// beside `path` and renamed (device::FileReplacement), so that a failure leaves the old file.
// Reading: NotFound, DataLoss, also for what no training makes, such as a moment that is no number,
// InvalidArgument or ResourceExhausted, naming the path and the defect. Writing: InvalidArgument if
// the path leads to no regular file, or what the system says.
absl::Status WriteState(const RankState& state, const std::string& path);
absl::StatusOr<RankState> ReadState(const std::string& path);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_RANK_STATE_H_
