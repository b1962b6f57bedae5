#include "brigade/optim/fused_update.h"

namespace brigade::optim {

FusedUpdate::FusedUpdate(const OptimizerOptions& options,
                         const std::vector<UpdateSegment>& segments, const UpdateTypes& types)
    : types_(types),
      weight_decay_mode_(
          options.kind == OptimizerKind::kAdamW || options.kind == OptimizerKind::kOneBitAdam ||
                  options.kind == OptimizerKind::kZeroOneAdam ||
                  options.kind == OptimizerKind::kAdamW8 || options.kind == OptimizerKind::kMuon
              ? kernels::WeightDecayMode::kDecoupled
              : kernels::WeightDecayMode::kCoupled) {
  for (const ParameterGroup& group : options.groups) {
    adam_groups_.push_back({group.beta1, group.beta2, group.eps, group.weight_decay});
    sgd_groups_.push_back({group.momentum, group.dampening, group.weight_decay, group.nesterov});
    lion_groups_.push_back({group.beta1, group.beta2, group.weight_decay});
  }
  if (IsAdam(options.kind) || HasCodes(options.kind) || options.kind == OptimizerKind::kMuon) {
    auto& list = segments_.emplace<std::vector<kernels::AdamSegment>>();
    for (const UpdateSegment& s : segments) {
      if (s.first_codes != nullptr) {
        coded_.push_back({s.param, s.first_codes, s.second_codes, s.first_scales, s.second_scales,
                          s.grad, s.copy, s.size, s.group});
        continue;
      }
      list.push_back({s.param, s.first_moment, s.second_moment, s.grad, s.copy, s.size, s.group});
    }
    return;
  }
  if (options.kind == OptimizerKind::kLion) {
    auto& list = segments_.emplace<std::vector<kernels::LionSegment>>();
    for (const UpdateSegment& s : segments) {
      list.push_back({s.param, s.first_moment, s.grad, s.copy, s.size, s.group});
    }
    return;
  }
  auto& list = segments_.emplace<std::vector<kernels::SgdSegment>>();
  for (const UpdateSegment& s : segments) {
    // Where groups differ, those without momentum still have their part of a flat array.
    const bool still = s.group >= 0 && s.group < static_cast<int64_t>(sgd_groups_.size()) &&
                       sgd_groups_[s.group].momentum == 0.0;
    list.push_back({s.param, still ? nullptr : s.first_moment, s.grad, s.copy, s.size, s.group});
  }
}

absl::Status FusedUpdate::Enqueue(const StepDecision& decision, device::Stream& stream) const {
  const auto enqueue = [&](const auto& list, auto options, const auto& groups, auto kernel) {
    options.grad_dtype = types_.grad;
    options.copy_dtype = types_.copy;
    // Lion has one way.
    if constexpr (requires { options.weight_decay_mode; }) {
      options.weight_decay_mode = weight_decay_mode_;
    }
    options.groups = groups;
    options.state = decision.state;
    options.group_steps = decision.group_steps;
    return kernel(list, options, stream);
  };
  if (!coded_.empty()) {
    const absl::Status status =
        enqueue(coded_, kernels::AdamOptions(), adam_groups_, kernels::Adam8);
    if (!status.ok()) return status;
  }
  if (const auto* adam = std::get_if<std::vector<kernels::AdamSegment>>(&segments_)) {
    if (adam->empty() && !coded_.empty()) return absl::OkStatus();
    return enqueue(*adam, kernels::AdamOptions(), adam_groups_, kernels::Adam);
  }
  if (const auto* lion = std::get_if<std::vector<kernels::LionSegment>>(&segments_)) {
    return enqueue(*lion, kernels::LionOptions(), lion_groups_, kernels::Lion);
  }
  return enqueue(std::get<std::vector<kernels::SgdSegment>>(segments_), kernels::SgdOptions(),
                 sgd_groups_, kernels::Sgd);
}

}  // namespace brigade::optim
