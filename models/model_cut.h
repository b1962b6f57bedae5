#ifndef BRIGADE_MODELS_MODEL_CUT_H_
#define BRIGADE_MODELS_MODEL_CUT_H_

// How the parameters of a model are cut over tensor ranks, and what follows for its spec.

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/parallel/shard.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::models {

struct ModelCut {
  // Of the model, and which of them are this rank's.
  parallel::TensorShards shards = {};
  // Of each parameter, by its number, in the shape that it has as a whole.
  std::vector<parallel::Shard> parameters = {};

  bool is_sharded() const { return shards.count > 1; }
};

// What a rank has of a model: `whole` with the sizes of its parts. What every rank has whole counts
// on the first one. What is cut in several shards has no shape: its elements lie otherwise. For as
// many parameters as the cut has.
zero::ModelSpec PartOf(zero::ModelSpec whole, const ModelCut& cut);
// And back: `part` with whole parameters, all of which count.
zero::ModelSpec WholeOf(zero::ModelSpec part, const ModelCut& cut);

// InvalidArgument naming what is wrong, unless the shards are `wanted` and `part` is what PartOf
// gives.
absl::Status CheckCut(const zero::ModelSpec& part, const ModelCut& cut,
                      const parallel::TensorShards& wanted);

// What a rank has of a parameter's values: `whole` of Shard::size, `part` of Shard::local_size.
void CutValues(const parallel::Shard& shard, const parallel::TensorShards& shards,
               absl::Span<const float> whole, absl::Span<float> part);

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_MODEL_CUT_H_
