#ifndef BRIGADE_EXAMPLES_GPT_MODEL_PART_H_
#define BRIGADE_EXAMPLES_GPT_MODEL_PART_H_

// What of the model one stage of a pipeline has: ranges of its stages, with units and parameters
// that are numbered anew.

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/parallel/pipeline/stage_range.h"
#include "brigade/parallel/shard.h"
#include "brigade/train/stage_spec.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::gpt {

// Of the model's stages: 0 is the embedding, then come the blocks, then the head.
using parallel::StageRange;

inline int StagesOf(const ModelOptions& model) { return static_cast<int>(model.layers) + 2; }

// The chunks that one rank has (train/stage_spec.h): without a pipeline the whole model as one
// chunk. The head uses the tokens of the embedding if the part has both, else it has them as a
// parameter of its own, its last.
class ModelPart : public train::StageSpec {
 public:
  // The whole model.
  explicit ModelPart(const ModelOptions& model) : StageSpec(SpecOf(model)) {}
  // Ranges in ascending order, for which Validate is OK.
  ModelPart(const ModelOptions& model, std::vector<StageRange> chunks)
      : StageSpec(SpecOf(model), std::move(chunks)) {}

  // InvalidArgument naming the chunk, unless there is one, and each has a stage, lies in the model
  // and behind the one before.
  static absl::Status Validate(const ModelOptions& model, const std::vector<StageRange>& chunks) {
    return StageSpec::Validate(StagesOf(model), chunks);
  }

  bool has_embedding() const { return has_begin(); }
  bool has_head() const { return has_end(); }
};

// The units of a part, as SpecOf(model, shards) has them. Tokens of an embedding without the head,
// or of a head without the embedding, are tied outside; of the two the embedding's count.
inline zero::ModelSpec SpecOf(const ModelOptions& model, const parallel::TensorShards& shards,
                              const ModelPart& part) {
  return part.Of(SpecOf(model, shards));
}

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_MODEL_PART_H_
