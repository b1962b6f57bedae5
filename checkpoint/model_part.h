#ifndef BRIGADE_CHECKPOINT_MODEL_PART_H_
#define BRIGADE_CHECKPOINT_MODEL_PART_H_

#include <vector>

#include "absl/types/span.h"
#include "brigade/parallel/shard.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::checkpoint {

// Which part of a model a rank's ZeroOptimizer has, where groups of ranks share one
// (ZeroOptions::model_ranks): tensor shards of its parameters, some of them (a stage of a
// pipeline), or both. A checkpoint has the whole model: the same bytes, however it is shared. What
// several groups have alike, the one that counts it saves (ParameterSpec::counted), and all load.
struct ModelPart {
  // The whole model, the same on all ranks. A group's parameters are those of the same names, in
  // any order and in any units; what is counted, each group says of its own. Empty: the group has
  // all of them, in the order of its own spec.
  zero::ModelSpec model = {};
  // How each parameter of the model is cut, in its order; empty: those that a group has, it has
  // whole.
  std::vector<parallel::Shard> parameters = {};
  // The group's.
  parallel::TensorShards shards = {};
};

// The number in `model` of each parameter of the plan, by its name; -1: it is not in there.
std::vector<int> NumbersIn(absl::Span<const zero::Parameter> model, const zero::Plan& plan);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_MODEL_PART_H_
