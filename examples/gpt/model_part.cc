#include "brigade/examples/gpt/model_part.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace brigade::gpt {

ModelPart::ModelPart(const ModelOptions& model) : ModelPart(model, {{0, StagesOf(model)}}) {}

ModelPart::ModelPart(const ModelOptions& model, std::vector<StageRange> chunks)
    : chunks_(std::move(chunks)),
      unit_of_stage_(static_cast<size_t>(StagesOf(model)), -1),
      local_(static_cast<size_t>(HeadParameter(model, kFinalNormBias)) + 1, -1) {
  const auto add = [&](int parameter) {
    local_[static_cast<size_t>(parameter)] = static_cast<int>(parameters_.size());
    parameters_.push_back(parameter);
  };
  for (const StageRange& chunk : chunks_) {
    for (int stage = chunk.first; stage < chunk.end; ++stage) {
      unit_of_stage_[static_cast<size_t>(stage)] = units();
      stage_of_unit_.push_back(stage);
      if (stage == 0) {
        add(kTokens);
        add(kPositions);
      } else if (stage <= model.layers) {
        for (int i = 0; i < kBlockParameters; ++i) {
          add(BlockParameter(stage - 1, static_cast<Block>(i)));
        }
      } else {
        add(HeadParameter(model, kFinalNormWeight));
        add(HeadParameter(model, kFinalNormBias));
        if (!has_embedding()) add(kTokens);
      }
    }
  }
}

absl::Status ModelPart::Validate(const ModelOptions& model, const std::vector<StageRange>& chunks) {
  if (chunks.empty()) return absl::InvalidArgumentError("a part of the model has no chunk");
  int end = 0;
  for (size_t c = 0; c < chunks.size(); ++c) {
    const StageRange& chunk = chunks[c];
    if (chunk.first < end || chunk.end <= chunk.first || chunk.end > StagesOf(model)) {
      return absl::InvalidArgumentError(absl::StrCat("chunk ", c, " has the stages ", chunk.first,
                                                     " to ", chunk.end, " of ", StagesOf(model),
                                                     ", behind ", end));
    }
    end = chunk.end;
  }
  return absl::OkStatus();
}

std::vector<int> ModelPart::first_units() const {
  std::vector<int> units;
  for (const StageRange& chunk : chunks_) units.push_back(UnitOf(chunk.first));
  return units;
}

zero::ModelSpec SpecOf(const ModelOptions& model, const parallel::TensorShards& shards,
                       const ModelPart& part) {
  const zero::ModelSpec whole = SpecOf(model, shards);
  const int head = StagesOf(model) - 1;
  zero::ModelSpec spec;
  for (int unit = 0; unit < part.units(); ++unit) {
    const int stage = part.StageOf(unit);
    spec.push_back(whole[static_cast<size_t>(stage)]);
    if (stage == 0 && !part.has_head()) spec.back().parameters[kTokens].tied_outside = true;
    if (stage == head && !part.has_embedding()) {
      spec.back().tied.clear();
      zero::ParameterSpec tokens = whole[0].parameters[kTokens];
      tokens.counted = false;
      tokens.tied_outside = true;
      spec.back().parameters.push_back(std::move(tokens));
    }
  }
  return spec;
}

}  // namespace brigade::gpt
