#ifndef BRIGADE_CHECKPOINT_CHECK_PART_H_
#define BRIGADE_CHECKPOINT_CHECK_PART_H_

#include <vector>

#include "absl/status/statusor.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/collectives/communicator.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::checkpoint {

// The parameters of the whole model, with type and shape, of which the optimizer has the part that
// `part` says. A call of all ranks that save or load a checkpoint together, on the host: each tells
// the others a bit for each parameter.
//
// Errors       InvalidArgument, on all ranks: naming the parameter that is not in the model, or is
//              another one there, or of which ranks have other models; what is saved by no group,
//              or the ranks of two groups that both save it; the number of parameters or groups;
//              and unless these are all ranks of all groups.
absl::StatusOr<std::vector<zero::Parameter>> CheckPart(const ModelPart& part,
                                                       const zero::ZeroOptimizer& zero,
                                                       collectives::Communicator& communicator);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_CHECK_PART_H_
