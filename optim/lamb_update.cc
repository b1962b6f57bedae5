#include "brigade/optim/lamb_update.h"

#include <algorithm>
#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::optim {

std::vector<kernels::LambGroup> LambGroupsOf(const OptimizerOptions& options) {
  std::vector<kernels::LambGroup> groups;
  for (const ParameterGroup& group : options.groups) {
    groups.push_back({group.beta1, group.beta2, group.eps, group.weight_decay, group.min_trust,
                      group.max_trust});
  }
  return groups;
}

int64_t LambUpdate::Bytes(const LambSizes& sizes, int ranks) {
  return ranks * sizes.tiles * static_cast<int64_t>(sizeof(kernels::LambSums)) +
         sizes.tensors * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<std::unique_ptr<LambUpdate>> LambUpdate::Create(const OptimizerOptions& options,
                                                               const std::vector<UpdateList>& lists,
                                                               const LambRanks& ranks,
                                                               device::Context& context) {
  std::unique_ptr<LambUpdate> update(new LambUpdate());
  update->ranks_ = ranks;
  update->constants_ = kernels::MakeOneBitLambConstants(options.one_bit_lamb);
  update->groups_ = LambGroupsOf(options);
  int64_t tiles = 0;
  for (const UpdateList& list : lists) {
    List& made = update->lists_.emplace_back();
    made.types = list.types;
    made.begin = static_cast<size_t>(2 * tiles);
    for (const UpdateSegment& s : list.segments) {
      made.segments.push_back(
          {s.param, s.first_moment, s.second_moment, s.grad, s.copy, s.size, s.group, nullptr});
      const int64_t count = kernels::LambWorkspaceSize({&made.segments.back(), 1}) / 2;
      kernels::LambTensor tensor = s.tensor;
      if (ranks.ranks == 1) tensor = {0, count, tiles, std::max<int64_t>(count, 1), 0, s.group};
      update->tensors_.push_back(tensor);
      tiles += count;
    }
    made.size = static_cast<size_t>(2 * tiles) - made.begin;
  }
  update->own_size_ = static_cast<size_t>(2 * tiles);
  constexpr auto kPurpose = device::Purpose::kScratch;
  BRIGADE_ASSIGN_OR_RETURN(update->sums_, context.Allocate(Bytes({.tiles = tiles}, ranks.ranks),
                                                           kPurpose, "sums of tensors"));
  const int64_t tensors = std::max(ranks.tensors, static_cast<int64_t>(update->tensors_.size()));
  BRIGADE_ASSIGN_OR_RETURN(
      update->trusts_, context.Allocate(Bytes({.tensors = tensors}, 1), kPurpose, "trust ratios"));
  const float* trust = update->trusts_.as<float>().data();
  for (List& list : update->lists_) {
    for (kernels::LambSegment& s : list.segments) s.trust = trust++;
  }
  return update;
}

kernels::LambOptions LambUpdate::OptionsOf(const UpdateTypes& types,
                                           const StepDecision& decision) const {
  kernels::LambOptions options;
  options.grad_dtype = types.grad;
  options.copy_dtype = types.copy;
  options.groups = groups_;
  options.state = decision.state;
  options.group_steps = decision.group_steps;
  return options;
}

absl::Status LambUpdate::Enqueue(const StepDecision& decision, GatherSums gather,
                                 device::Stream& stream) const {
  const absl::Span<double> all = sums_.as<double>();
  const absl::Span<double> own =
      all.subspan(static_cast<size_t>(ranks_.rank) * own_size_, own_size_);
  for (const List& list : lists_) {
    BRIGADE_RETURN_IF_ERROR(kernels::LambMoments(list.segments, OptionsOf(list.types, decision),
                                                 own.subspan(list.begin, list.size), stream));
  }
  BRIGADE_RETURN_IF_ERROR(gather(own, all));
  const absl::Span<float> trusts = trusts_.as<float>();
  BRIGADE_RETURN_IF_ERROR(
      kernels::LambTrusts(tensors_, OptionsOf({}, decision), all, trusts, stream));
  if (!ranks_.all.empty()) {
    BRIGADE_RETURN_IF_ERROR(kernels::OneBitLambRatios(ranks_.all, OptionsOf({}, decision),
                                                      constants_, all, ranks_.numbers, stream));
  }
  for (const List& list : lists_) {
    BRIGADE_RETURN_IF_ERROR(
        kernels::LambParams(list.segments, OptionsOf(list.types, decision), trusts, stream));
  }
  return absl::OkStatus();
}

}  // namespace brigade::optim
