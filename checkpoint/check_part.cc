#include "brigade/checkpoint/check_part.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("checkpoint: ", what...));
}

absl::Status Validate(const ModelPart& part, const zero::ZeroOptimizer& zero) {
  const std::vector<zero::Parameter>& parameters = zero.plan().parameters();
  const int groups = zero.options().model_ranks;
  if (part.parameters.empty()) {
    if (groups == 1 && part.shards == parallel::TensorShards()) return absl::OkStatus();
    return Invalid(groups, " groups have parts of a model, and ModelPart says nothing of how its ",
                   parameters.size(), " parameters are cut");
  }
  BRIGADE_RETURN_IF_ERROR(parallel::Validate(part.shards));
  if (part.shards.ranks != groups) {
    return Invalid(groups, " groups have parts of a model, by ModelPart they are ",
                   part.shards.ranks);
  }
  if (part.parameters.size() != parameters.size()) {
    return Invalid("the model has ", parameters.size(), " parameters, ModelPart ",
                   part.parameters.size());
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    const zero::ParameterSpec& spec = parameters[p].spec;
    BRIGADE_RETURN_IF_ERROR(parallel::Validate(part.parameters[p], part.shards));
    const int64_t size = part.parameters[p].local_size(part.shards);
    if (size == spec.size) continue;
    return Invalid(spec.name, " has ", spec.size, " elements, by ModelPart ", size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPart(const ModelPart& part, const zero::ZeroOptimizer& zero,
                       collectives::Communicator& communicator) {
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(Validate(part, zero), communicator));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all,
                           communicator.AllGatherHost({part.shards.rank, zero.rank()}));
  const int64_t groups = zero.options().model_ranks, ranks = zero.plan().ranks();
  std::vector<int> seen(static_cast<size_t>(groups * ranks));
  const auto size = static_cast<int64_t>(all.size() / 2);
  for (int64_t r = 0; r < size; ++r) {
    const int64_t group = all[static_cast<size_t>(2 * r)],
                  rank = all[static_cast<size_t>(2 * r + 1)];
    const bool fits = group < groups && rank < ranks;
    if (fits && ++seen[static_cast<size_t>(group * ranks + rank)] == 1) continue;
    return Invalid("rank ", r, " is rank ", rank, " of group ", group,
                   fits ? ", as another one is" : ", of which there are none");
  }
  if (size == groups * ranks) return absl::OkStatus();
  return Invalid(size, " ranks save or load it, of ", groups, " groups of ", ranks);
}

}  // namespace brigade::checkpoint
