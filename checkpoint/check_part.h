#ifndef BRIGADE_CHECKPOINT_CHECK_PART_H_
#define BRIGADE_CHECKPOINT_CHECK_PART_H_

#include "absl/status/status.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/collectives/communicator.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::checkpoint {

// A call of all ranks that save or load a checkpoint together. InvalidArgument, on all: naming the
// parameter whose size is not what `part` says, or the number of parameters or groups; or unless
// they are all ranks of all groups.
absl::Status CheckPart(const ModelPart& part, const zero::ZeroOptimizer& zero,
                       collectives::Communicator& communicator);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_CHECK_PART_H_
