#include "brigade/optim/one_bit_lamb_update.h"

#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::optim {

using kernels::OneBitLambSums;

int64_t OneBitLambUpdate::Bytes(const LambSizes& sizes, int ranks) {
  return ranks * sizes.tiles * static_cast<int64_t>(sizeof(OneBitLambSums)) +
         static_cast<int64_t>(sizeof(double)) + sizes.tensors * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<std::unique_ptr<OneBitLambUpdate>> OneBitLambUpdate::Create(
    const OptimizerOptions& options, const std::vector<UpdateList>& lists, const LambRanks& ranks,
    int64_t tiles, const std::vector<int64_t>& counts, device::Context& context) {
  std::unique_ptr<OneBitLambUpdate> update(new OneBitLambUpdate());
  update->groups_ = LambGroupsOf(options);
  update->constants_ = kernels::MakeOneBitLambConstants(options.one_bit_lamb);
  update->ranks_ = ranks;
  update->counts_ = counts;
  update->tiles_ = static_cast<size_t>(tiles);
  constexpr auto kPurpose = device::Purpose::kScratch;
  const auto tensors = static_cast<int64_t>(ranks.all.size());
  BRIGADE_ASSIGN_OR_RETURN(update->sums_, context.Allocate(Bytes({.tiles = tiles}, ranks.ranks),
                                                           kPurpose, "sums of exchanged tensors"));
  BRIGADE_ASSIGN_OR_RETURN(update->trusts_,
                           context.Allocate(tensors * static_cast<int64_t>(sizeof(float)), kPurpose,
                                            "trust ratios of exchanged tensors"));
  const float* const trusts = update->trusts_.as<float>().data();
  for (const UpdateList& list : lists) {
    List& made = update->lists_.emplace_back();
    made.types = list.types;
    for (const UpdateSegment& s : list.segments) {
      update->segments_.push_back({s.param, s.first_moment, s.second_moment, s.fresh_moment,
                                   static_cast<const float*>(s.grad), s.size, s.group,
                                   s.tensor_index, s.first_tile});
      made.params.push_back({s.param, s.first_moment, s.second_moment, s.grad, s.copy, s.size,
                             s.group, trusts + s.tensor_index});
    }
  }
  return update;
}

kernels::LambOptions OneBitLambUpdate::OptionsOf(const UpdateTypes& types,
                                                 const StepDecision& decision) const {
  kernels::LambOptions options;
  options.copy_dtype = types.copy;
  options.groups = groups_;
  options.state = decision.state;
  options.group_steps = decision.group_steps;
  return options;
}

absl::Span<OneBitLambSums> OneBitLambUpdate::all() const {
  return absl::MakeSpan(static_cast<OneBitLambSums*>(sums_.data()),
                        static_cast<size_t>(ranks_.ranks) * tiles_);
}

absl::Span<OneBitLambSums> OneBitLambUpdate::own() const {
  return all().subspan(static_cast<size_t>(ranks_.rank) * tiles_, tiles_);
}

absl::Status OneBitLambUpdate::Freeze(GatherSums gather, device::Stream& stream) const {
  BRIGADE_RETURN_IF_ERROR(kernels::OneBitLambFreeze(segments_, ranks_.numbers, own(), stream));
  BRIGADE_RETURN_IF_ERROR(gather(own(), all()));
  auto* const total = reinterpret_cast<double*>(all().data() + all().size());
  return kernels::OneBitLambScales(ranks_.all, counts_, all(), total, ranks_.numbers, stream);
}

absl::Status OneBitLambUpdate::Enqueue(const StepDecision& decision, GatherSums gather,
                                       device::Stream& stream) const {
  BRIGADE_RETURN_IF_ERROR(
      kernels::OneBitLambMoments(segments_, OptionsOf({}, decision), own(), stream));
  BRIGADE_RETURN_IF_ERROR(gather(own(), all()));
  const absl::Span<float> trusts = trusts_.as<float>();
  BRIGADE_RETURN_IF_ERROR(kernels::OneBitLambTrusts(ranks_.all, OptionsOf({}, decision), constants_,
                                                    all(), ranks_.numbers, trusts, stream));
  for (const List& list : lists_) {
    BRIGADE_RETURN_IF_ERROR(
        kernels::LambParams(list.params, OptionsOf(list.types, decision), trusts, stream));
  }
  return absl::OkStatus();
}

}  // namespace brigade::optim
