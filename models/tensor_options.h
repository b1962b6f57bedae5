#ifndef BRIGADE_MODELS_TENSOR_OPTIONS_H_
#define BRIGADE_MODELS_TENSOR_OPTIONS_H_

#include "brigade/collectives/communicator.h"
#include "brigade/parallel/shard.h"
#include "brigade/parallel/tensor/shard_sums.h"

namespace brigade::models {

// With what a model is made whose matrices tensor ranks share (parallel/shard.h).
struct TensorOptions {
  // Of the model, and which of them are this rank's.
  parallel::TensorShards shards = {};
  // Of shards.ranks, which must outlive the model; null for a rank alone, and for a model that only
  // tells what it would be (StageUnits).
  collectives::Communicator* ranks = nullptr;
  // What ranks send of sums over shards, and in how many pieces, beside products or between them:
  // parallel::ShardSumOptions.
  parallel::SumWire wire = parallel::SumWire::kFloat32;
  int pieces = 1;
  bool overlap = false;

  bool is_sharded() const { return shards.count > 1; }
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_TENSOR_OPTIONS_H_
