#ifndef BRIGADE_ZERO_STATE_H_
#define BRIGADE_ZERO_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::zero {

// What one rank owns of a training run: the same in every stage. Host memory.
struct RankState {
  struct BucketSlice {
    // fp32, [slice] each: the master (of a frozen bucket the weights), then the optimizer's moments.
    std::vector<std::vector<float>> arrays;
  };

  uint64_t plan_fingerprint = 0;  // of model, plan and optimizer; not of the stage
  int32_t rank = 0;
  int32_t ranks = 1;
  kernels::StepState step = {};
  std::vector<BucketSlice> buckets;
};

// To and from a plain file of this machine's byte order, with a checksum. Written beside `path` and renamed, so that a
// failure leaves the old one. NotFound, DataLoss or InvalidArgument naming path and what is wrong; for writing what the
// system says.
absl::Status WriteState(const RankState& state, const std::string& path);
absl::StatusOr<RankState> ReadState(const std::string& path);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_STATE_H_
