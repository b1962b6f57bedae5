#include "brigade/models/model_cut.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::models {
namespace {

std::string Words(const parallel::TensorShards& shards) {
  return absl::StrCat(shards.count, " tensor shards, as rank ", shards.rank, " of ", shards.ranks);
}

// Calls visit(parameter, its shard).
template <typename Spec, typename Visit>
void ForEachParameter(Spec& model, const ModelCut& cut, const Visit& visit) {
  size_t number = 0;
  for (auto& unit : model) {
    for (auto& parameter : unit.parameters) visit(parameter, cut.parameters[number++]);
  }
}

}  // namespace

zero::ModelSpec PartOf(zero::ModelSpec whole, const ModelCut& cut) {
  ForEachParameter(whole, cut, [&](zero::ParameterSpec& parameter, const parallel::Shard& shard) {
    parameter.size = shard.local_size(cut.shards);
    parameter.counted = shard.counts_on(cut.shards);
    if (cut.is_sharded() && shard.axis.has_value()) parameter.shape.clear();
  });
  return whole;
}

zero::ModelSpec WholeOf(zero::ModelSpec part, const ModelCut& cut) {
  ForEachParameter(part, cut, [](zero::ParameterSpec& parameter, const parallel::Shard& shard) {
    parameter.size = shard.size();
    parameter.counted = true;
    parameter.shape = shard.shape;
  });
  return part;
}

absl::Status CheckCut(const zero::ModelSpec& part, const ModelCut& cut,
                      const parallel::TensorShards& wanted) {
  const auto invalid = [](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model that the factory has made is cut otherwise: ", what...));
  };
  if (cut.shards != wanted) {
    return invalid("it is of ", Words(cut.shards), ", where ModelPlace::tensor has ",
                   Words(wanted));
  }
  // What is of one shard is as it is.
  if (!cut.is_sharded()) return absl::OkStatus();
  size_t parameters = 0;
  for (const zero::UnitSpec& unit : part) parameters += unit.parameters.size();
  if (cut.parameters.size() != parameters) {
    return invalid("Model::cut has ", cut.parameters.size(), " parameters, its spec ", parameters);
  }
  absl::Status status;
  ForEachParameter(
      part, cut, [&](const zero::ParameterSpec& parameter, const parallel::Shard& shard) {
        if (!status.ok()) return;
        if (status = parallel::Validate(shard, cut.shards); !status.ok()) {
          status = invalid("\"", parameter.name, "\": ", status.message());
        } else if (const int64_t size = shard.local_size(cut.shards); parameter.size != size) {
          status = invalid("\"", parameter.name, "\" has ", parameter.size,
                           " elements, by Model::cut ", size);
        } else if (const bool counts = shard.counts_on(cut.shards); parameter.counted != counts) {
          status =
              invalid("\"", parameter.name, "\" ", parameter.counted ? "counts" : "does not count",
                      " on this rank, which by Model::cut it ", counts ? "does" : "does not");
        }
      });
  return status;
}

void CutValues(const parallel::Shard& shard, const parallel::TensorShards& shards,
               absl::Span<const float> whole, absl::Span<float> part) {
  parallel::ForEachRun(shard, shards, [&](const parallel::ShardRun& run) {
    std::copy_n(whole.begin() + run.global, run.size, part.begin() + run.local);
  });
}

}  // namespace brigade::models
