#include "brigade/train/config/config_rules.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace brigade::train {

const std::optional<std::string>& Directory(const Settings& s) {
  return s.file_directory.has_value() ? s.file_directory : s.nvme_path;
}

recompute::Policy PolicyOf(const Json& config, const Settings& s) {
  recompute::Policy policy;
  if (Find(config, "activation_checkpointing") != nullptr) {
    policy.kind = recompute::Policy::Kind::kBlock;
  }
  if (const auto interval = s.activation_checkpoint_interval; interval.has_value()) {
    policy = *interval == 0 ? recompute::Policy()
                            : recompute::Policy{.kind = recompute::Policy::Kind::kSegments,
                                                .stages_per_segment = *interval};
  }
  if (s.recompute.has_value()) policy = *s.recompute;
  policy.stash = s.stash.value_or(s.cpu_checkpointing ? recompute::StashTier::kHost
                                                      : recompute::StashTier::kNone);
  return policy;
}

precision::DType TypeOf(const Settings& s) {
  return s.fp16   ? precision::DType::kFloat16
         : s.bf16 ? precision::DType::kBFloat16
                  : precision::DType::kFloat32;
}

Rules Joined(const std::vector<Rules>& parts) {
  Rules joined;
  for (const Rules& part : parts) joined.insert(joined.end(), part.begin(), part.end());
  return joined;
}

std::string Names(std::initializer_list<absl::string_view> lists) {
  return absl::StrJoin(lists, " ");
}

void CheckRules(const Together& together, Reading& reading) {
  std::set<std::string> named;
  const auto apply = [&](const Rules& rules, const std::vector<Refusal>& unread) {
    for (const Rule& rule : rules) {
      const Json* const value = together.said.Find(rule.path);
      if (rule.is_right || (value == nullptr) != (rule.kind == Rule::Kind::kMissing)) continue;
      if (AnyRefused(Names({rule.path, rule.others}), unread)) continue;
      if (!named.insert(rule.path).second) continue;
      switch (rule.kind) {
        case Rule::Kind::kRefused:
          reading.refusals.push_back({rule.path, ButText(rule.path, *value, rule.why_not)});
          break;
        case Rule::Kind::kHarmless:
          reading.without_effect.push_back(
              absl::StrCat(rule.path, " is ", ShortJson(*value), ": ", rule.why_not));
          break;
        case Rule::Kind::kMissing:
          reading.refusals.push_back(
              {rule.path, absl::StrCat(rule.path, " is not given; ", rule.why_not)});
          break;
      }
    }
  };
  apply(FlagRules(together.said), {});
  const std::vector<Refusal> unread = reading.refusals;
  apply(OptimizerRules(together), unread);
  apply(ParallelRules(together), unread);
  apply(ZeroRules(together), unread);
}

}  // namespace brigade::train
