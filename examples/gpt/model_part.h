#ifndef BRIGADE_EXAMPLES_GPT_MODEL_PART_H_
#define BRIGADE_EXAMPLES_GPT_MODEL_PART_H_

// What of the model one stage of a pipeline has: ranges of its stages, with units and parameters
// that are numbered anew.

#include <vector>

#include "absl/status/status.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/parallel/pipeline/stage_range.h"
#include "brigade/parallel/shard.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::gpt {

// Of the model's stages: 0 is the embedding, then come the blocks, then the head.
using parallel::StageRange;

inline int StagesOf(const ModelOptions& model) { return static_cast<int>(model.layers) + 2; }

// The chunks that one rank has: without a pipeline the whole model as one chunk. Its units are the
// chunks' stages in their order, and its parameters the units'. The head uses the tokens of the
// embedding if the part has both, else it has them as a parameter of its own, its last.
class ModelPart {
 public:
  // The whole model.
  explicit ModelPart(const ModelOptions& model);
  // Ranges in ascending order, for which Validate is OK.
  ModelPart(const ModelOptions& model, std::vector<StageRange> chunks);

  // InvalidArgument naming the chunk, unless there is one, and each has a stage, lies in the model
  // and behind the one before.
  static absl::Status Validate(const ModelOptions& model, const std::vector<StageRange>& chunks);

  const std::vector<StageRange>& chunks() const { return chunks_; }
  int units() const { return static_cast<int>(stage_of_unit_.size()); }
  // The unit of a stage of the model, -1 if another rank has it; and back.
  int UnitOf(int stage) const { return unit_of_stage_[static_cast<size_t>(stage)]; }
  int StageOf(int unit) const { return stage_of_unit_[static_cast<size_t>(unit)]; }
  // The part's number of a parameter of the whole model, -1 if another rank has it; and the whole
  // model's numbers, in the order of the part's.
  int ParameterOf(int parameter) const { return local_[static_cast<size_t>(parameter)]; }
  const std::vector<int>& parameters() const { return parameters_; }
  // Of each chunk.
  std::vector<int> first_units() const;

  bool has_embedding() const { return UnitOf(0) >= 0; }
  bool has_head() const { return UnitOf(static_cast<int>(unit_of_stage_.size()) - 1) >= 0; }
  // It is one chunk of all stages.
  bool is_whole() const { return chunks_[0].size() == static_cast<int>(unit_of_stage_.size()); }

 private:
  std::vector<StageRange> chunks_;
  // [stage of the model], [unit].
  std::vector<int> unit_of_stage_, stage_of_unit_;
  // [parameter of the model], [parameter].
  std::vector<int> local_, parameters_;
};

// The units of a part, as SpecOf(model, shards) has them. Tokens of an embedding without the head,
// or of a head without the embedding, are tied outside; of the two the embedding's count.
zero::ModelSpec SpecOf(const ModelOptions& model, const parallel::TensorShards& shards,
                       const ModelPart& part);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_MODEL_PART_H_
