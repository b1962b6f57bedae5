#include "brigade/checkpoint/check_part.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/checkpoint/fields.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

using device::Quoted;
using zero::Parameter;

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("checkpoint: ", what...));
}

absl::Status CheckGroups(const ModelPart& part, const zero::ZeroOptimizer& zero) {
  const int groups = zero.options().model_ranks;
  BRIGADE_RETURN_IF_ERROR(parallel::Validate(part.shards));
  if (part.parameters.empty() && part.shards != parallel::TensorShards()) {
    return Invalid("ModelPart has ", part.shards.count,
                   " tensor shards, and says nothing of how parameters are cut");
  }
  if (part.shards.ranks == groups) return absl::OkStatus();
  if (!part.model.empty() && groups % part.shards.ranks == 0) return absl::OkStatus();
  if (part.model.empty() && part.parameters.empty()) {
    return Invalid(groups, " groups have parts of a model, and ModelPart says nothing of how its ",
                   zero.plan().parameters().size(), " parameters are cut");
  }
  return Invalid(groups, " groups have parts of a model, by ModelPart they are ",
                 part.model.empty() ? "" : "a multiple of ", part.shards.ranks);
}

// Of the model; where the part does not say it, it has the plan's, each as the shards have it
// whole.
absl::StatusOr<std::vector<Parameter>> ParametersOf(const ModelPart& part,
                                                    const zero::ZeroOptimizer& zero) {
  std::vector<Parameter> parameters = zero.plan().parameters();
  if (!part.model.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(
        const zero::Plan model,
        zero::Plan::Create(part.model, {.dtype = zero.options().dtype,
                                        .coded = optim::CodesOf(zero.options().optimizer)}));
    parameters = model.parameters();
  }
  if (part.parameters.empty()) return parameters;
  if (part.parameters.size() != parameters.size()) {
    return Invalid("the model has ", parameters.size(), " parameters, ModelPart shards of ",
                   part.parameters.size());
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    const parallel::Shard& shard = part.parameters[p];
    zero::ParameterSpec& spec = parameters[p].spec;
    BRIGADE_RETURN_IF_ERROR(parallel::Validate(shard, part.shards));
    if (part.model.empty()) {
      spec.size = shard.size();
      spec.shape = shard.shape;
    }
    if (spec.shape == shard.shape) continue;
    return Invalid(Quoted(spec.name), " is [", absl::StrJoin(spec.shape, ", "),
                   "] in the model, its shard one of [", absl::StrJoin(shard.shape, ", "), "]");
  }
  return parameters;
}

// Whether what the group has is in the model, and is there what it is here.
absl::Status CheckOwn(const ModelPart& part, const std::vector<Parameter>& model,
                      const zero::Plan& plan) {
  const std::vector<int> numbers = NumbersIn(model, plan);
  for (size_t p = 0; p < numbers.size(); ++p) {
    zero::ParameterSpec own = plan.parameters()[p].spec;
    if (numbers[p] < 0) return Invalid(Quoted(own.name), " is no parameter of the model");
    const auto number = static_cast<size_t>(numbers[p]);
    const zero::ParameterSpec& whole = model[number].spec;
    // Of several shards the elements lie otherwise.
    if (!part.parameters.empty() && part.parameters[number].axis.has_value() &&
        part.shards.count > 1) {
      const int64_t size = part.parameters[number].local_size(part.shards);
      if (own.size != size) {
        return Invalid(Quoted(own.name), " has ", own.size, " elements, by ModelPart ", size);
      }
      if (plan.parameters()[p].coded || model[number].coded) {
        return Invalid(Quoted(own.name), " is cut in ", part.shards.count,
                       " shards, whose moments are codes of blocks, or a matrix's momentum, that "
                       "the whole does not have; moments of fp32 can be saved");
      }
      own.shape = whole.shape;
    }
    if (ParameterText(own) == ParameterText(whole)) continue;
    return Invalid(Quoted(own.name), " is ", ParameterText(own), " here, ", ParameterText(whole),
                   " in the model");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Parameter>> CheckAlone(const ModelPart& part,
                                                  const zero::ZeroOptimizer& zero) {
  BRIGADE_RETURN_IF_ERROR(CheckGroups(part, zero));
  BRIGADE_ASSIGN_OR_RETURN(auto parameters, ParametersOf(part, zero));
  BRIGADE_RETURN_IF_ERROR(CheckOwn(part, parameters, zero.plan()));
  return parameters;
}

// What is the same on all ranks.
std::vector<std::string> LinesOf(const ModelPart& part, const std::vector<Parameter>& model) {
  std::vector<std::string> lines = {absl::StrCat(part.shards.count, " tensor shards on ",
                                                 part.shards.ranks, " ranks, and a model of ",
                                                 model.size(), " parameters")};
  for (size_t p = 0; p < model.size(); ++p) {
    std::string line = absl::StrCat("parameter ", p, " of the model, ", model[p].spec.name, " ",
                                    ParameterText(model[p].spec));
    if (!part.parameters.empty() && part.parameters[p].axis.has_value()) {
      absl::StrAppend(&line, ", cut along axis ", *part.parameters[p].axis, " in ",
                      part.parameters[p].parts, " parts");
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

// What a rank tells the others: which rank of its group it is, and of the tensor ranks; and a bit
// for each parameter of the model, whether it saves its part of that.
constexpr size_t kHead = 2;
constexpr size_t kBits = 64;

std::vector<int64_t> RecordOf(const ModelPart& part, const std::vector<Parameter>& model,
                              const zero::ZeroOptimizer& zero) {
  std::vector<int64_t> record(kHead + (model.size() + kBits - 1) / kBits);
  record[0] = zero.rank();
  record[1] = part.shards.rank;
  const std::vector<int> numbers = NumbersIn(model, zero.plan());
  for (size_t p = 0; p < numbers.size(); ++p) {
    if (!zero.plan().parameters()[p].spec.counted || zero.shard_group() > 0) continue;
    const auto number = static_cast<size_t>(numbers[p]);
    const uint64_t bit = uint64_t{1} << number % kBits;
    record[kHead + number / kBits] |= static_cast<int64_t>(bit);
  }
  return record;
}

// Ranks r of all groups own slice r of what each has of the model.
absl::Status CheckRanks(const std::vector<std::vector<int64_t>>& records, int groups, int ranks) {
  const auto size = static_cast<int64_t>(records.size());
  if (size != int64_t{groups} * ranks) {
    return Invalid(size, " ranks save or load it, of ", groups, " groups of ", ranks);
  }
  std::vector<int> seen(static_cast<size_t>(ranks));
  for (size_t r = 0; r < records.size(); ++r) {
    const int64_t rank = records[r][0];
    if (rank < ranks && ++seen[static_cast<size_t>(rank)] <= groups) continue;
    return Invalid("rank ", r, " is rank ", rank, " of its group, as ranks of ", groups,
                   " other groups are, of ", groups, " in all");
  }
  return absl::OkStatus();
}

// Among the ranks r of all groups one saves slice r of each parameter, or of each tensor rank's
// part of it.
absl::Status CheckSaved(const std::vector<std::vector<int64_t>>& records,
                        const std::vector<Parameter>& model, const ModelPart& part, int ranks) {
  const int parts_of_cut = part.shards.ranks;
  std::vector<int> savers;
  for (size_t p = 0; p < model.size(); ++p) {
    const bool is_cut = !part.parameters.empty() && part.parameters[p].axis.has_value();
    const int parts = is_cut ? parts_of_cut : 1;
    const auto name_of = [&](int of_tensor_rank) {
      return absl::StrCat(Quoted(model[p].spec.name),
                          is_cut ? absl::StrCat(" of tensor rank ", of_tensor_rank) : "");
    };
    savers.assign(static_cast<size_t>(ranks * parts), -1);
    for (size_t r = 0; r < records.size(); ++r) {
      if ((static_cast<uint64_t>(records[r][kHead + p / kBits]) >> p % kBits & 1) == 0) continue;
      const auto of_tensor_rank = static_cast<int>(is_cut ? records[r][1] : 0);
      int& saver = savers[static_cast<size_t>(records[r][0] * parts + of_tensor_rank)];
      if (saver >= 0) {
        return Invalid("ranks ", saver, " and ", r, " both save ", name_of(of_tensor_rank),
                       ": one group of those that have it counts it (ParameterSpec::counted)");
      }
      saver = static_cast<int>(r);
    }
    for (size_t s = 0; s < savers.size(); ++s) {
      if (savers[s] >= 0) continue;
      const int slice = static_cast<int>(s) / parts;
      return Invalid("no rank saves ", name_of(static_cast<int>(s) % parts),
                     ": of those that are rank ", slice,
                     " of their groups none has it and counts it (ParameterSpec::counted)");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Parameter>> CheckPart(const ModelPart& part,
                                                 const zero::ZeroOptimizer& zero,
                                                 collectives::Communicator& communicator) {
  absl::StatusOr<std::vector<Parameter>> model = CheckAlone(part, zero);
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(model.status(), communicator));
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnLines(LinesOf(part, *model), communicator));
  const std::vector<int64_t> mine = RecordOf(part, *model, zero);
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, communicator.AllGatherHost(mine));
  std::vector<std::vector<int64_t>> records;
  for (auto at = all.begin(); at != all.end(); at += static_cast<ptrdiff_t>(mine.size())) {
    records.emplace_back(at, at + static_cast<ptrdiff_t>(mine.size()));
  }
  const int ranks = zero.plan().ranks();
  BRIGADE_RETURN_IF_ERROR(
      CheckRanks(records, zero.options().model_ranks * zero.plan().shard_groups(), ranks));
  BRIGADE_RETURN_IF_ERROR(CheckSaved(records, *model, part, ranks));
  return model;
}

}  // namespace brigade::checkpoint
