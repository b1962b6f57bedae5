#include "brigade/train/stage_parts.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/counted.h"
#include "brigade/device/status_macros.h"

namespace brigade::train {

using By = parallel::PartitionChoice::By;

absl::StatusOr<std::vector<int>> PartsOf(absl::Span<const double> weights,
                                         const parallel::PipelineShape& pipeline,
                                         const parallel::PartitionChoice& partition,
                                         const parallel::MemoryLimit* limit) {
  if (partition.by != By::kBoundaries) return parallel::LeastMaximum(weights, pipeline, limit);
  BRIGADE_RETURN_IF_ERROR(parallel::CheckPartition(
      partition.boundaries, static_cast<int>(weights.size()), pipeline, limit));
  return partition.boundaries;
}

std::vector<double> ParametersOfUnits(const zero::ModelSpec& model) {
  std::map<std::string, int64_t> sizes;
  for (const zero::UnitSpec& unit : model) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      sizes[parameter.name] = parameter.size;
    }
  }
  std::vector<double> weights;
  for (const zero::UnitSpec& unit : model) {
    int64_t size = 0;
    for (const zero::ParameterSpec& parameter : unit.parameters) size += parameter.size;
    for (const std::string& name : unit.tied) size += sizes[name];
    weights.push_back(static_cast<double>(size));
  }
  return weights;
}

std::vector<parallel::StageRange> ChunksOf(const parallel::PipelineShape& pipeline,
                                           absl::Span<const int> boundaries, int stage) {
  std::vector<parallel::StageRange> chunks;
  for (int chunk = 0; chunk < pipeline.schedule.chunks; ++chunk) {
    const auto part = static_cast<size_t>(parallel::PartOf(pipeline, stage, chunk));
    chunks.push_back({boundaries[part], boundaries[part + 1]});
  }
  return chunks;
}

absl::Status AgreeOnParts(absl::Span<const int> boundaries, collectives::Communicator& world) {
  return collectives::AgreeOnLines(
      {absl::StrCat("parts of the model from its stages ", absl::StrJoin(boundaries, ", "))},
      world);
}

absl::Status CheckParts(int units, absl::string_view what, const TrainConfig& config) {
  const parallel::PipelineShape pipeline = config.pipeline_shape();
  if (pipeline.stages == 1) return absl::OkStatus();
  if (pipeline.parts() > units) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline.stages (--pipeline) ", pipeline.stages, " with ",
                     device::Counted(pipeline.schedule.chunks, "chunk"),
                     " each (brigade.schedule, --schedule) cut the model into ", pipeline.parts(),
                     " parts, but ", what, " are only ", units));
  }
  if (config.partition.by != By::kBoundaries) return absl::OkStatus();
  const absl::Status status =
      parallel::CheckPartition(config.partition.boundaries, units, pipeline, nullptr);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("brigade.partition (--partition): ", status.message()));
}

absl::Status CheckTies(const zero::ModelSpec& model, const parallel::PipelineShape& pipeline,
                       absl::Span<const int> boundaries) {
  std::map<std::string, size_t> owners;
  for (size_t unit = 0; unit < model.size(); ++unit) {
    for (const zero::ParameterSpec& parameter : model[unit].parameters) {
      owners[parameter.name] = unit;
    }
  }
  const auto stage_of = [&](size_t unit) {
    const auto behind =
        std::upper_bound(boundaries.begin(), boundaries.end(), static_cast<int>(unit));
    return parallel::PlaceOf(pipeline, static_cast<int>(behind - boundaries.begin()) - 1).stage;
  };
  for (size_t unit = 0; unit < model.size(); ++unit) {
    for (const std::string& name : model[unit].tied) {
      const auto owner = owners.find(name);
      if (owner == owners.end()) continue;
      const int of_owner = stage_of(owner->second), of_user = stage_of(unit);
      const bool are_ends =
          std::min(of_owner, of_user) == 0 && std::max(of_owner, of_user) == pipeline.stages - 1;
      if (of_owner == of_user || are_ends) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("a pipeline: units \"", model[owner->second].name, "\" of stage ", of_owner,
                       " and \"", model[unit].name, "\" of stage ", of_user, " share \"", name,
                       "\", which only the first and the last stage can"));
    }
  }
  return absl::OkStatus();
}

}  // namespace brigade::train
