#ifndef BRIGADE_CHECKPOINT_MODEL_PART_H_
#define BRIGADE_CHECKPOINT_MODEL_PART_H_

#include <vector>

#include "brigade/parallel/shard.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::checkpoint {

// Which part of a model a rank's ZeroOptimizer has, where groups of ranks share one
// (ZeroOptions::model_ranks). A checkpoint has the whole model: the same bytes, however it is
// shared.
struct ModelPart {
  // How each parameter is cut, in the order of the model's spec; empty: a rank's group has them
  // whole. What is cut over no axis all groups have alike, and the first one saves it.
  std::vector<parallel::Shard> parameters = {};
  // The group's.
  parallel::TensorShards shards = {};
};

// The plan's parameters with the sizes and shapes that they have in the model.
std::vector<zero::Parameter> WholeParameters(const zero::Plan& plan, const ModelPart& part);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_MODEL_PART_H_
