#include "brigade/zero/plan/optimizer_words.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/zero_one_schedule.h"

namespace brigade::zero {

absl::Status SetOptimizer(absl::string_view word, ZeroOptions& options) {
  using optim::OptimizerKind;
  constexpr std::pair<absl::string_view, OptimizerKind> kWords[] = {
      {"adafactor", OptimizerKind::kAdafactor},
      {"adam", OptimizerKind::kAdamW},
      {"adam8", OptimizerKind::kAdamW8},
      {"lamb", OptimizerKind::kLamb},
      {"lion", OptimizerKind::kLion},
      {"muon", OptimizerKind::kMuon},
      {"sgd", OptimizerKind::kSgd},
      {"one_bit_adam", OptimizerKind::kOneBitAdam},
      {"one_bit_lamb", OptimizerKind::kOneBitLamb},
      {"zero_one_adam", OptimizerKind::kZeroOneAdam}};
  for (const auto& [name, kind] : kWords) {
    if (word != name) continue;
    options.optimizer.kind = kind;
    if (kind == OptimizerKind::kMuon) options.optimizer.groups[0].momentum = 0.95;
    if (kind == OptimizerKind::kSgd) options.optimizer.groups[0].momentum = 0.9;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--optimizer is \"", word,
                   "\"; it must be adafactor, adam, adam8, lamb, lion, muon, sgd, one_bit_adam, "
                   "one_bit_lamb or zero_one_adam"));
}

absl::Status SetGradientCompression(absl::string_view word, ZeroOptions& options) {
  options.gradient_compression.reset();
  if (word == "none") return absl::OkStatus();
  for (const GradientCompression method : kGradientCompressions) {
    if (word != Name(method)) continue;
    options.gradient_compression = CompressionOptions{.method = method};
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--gradient_compression is \"", word, "\"; it must be none, one_bit, power_sgd or top_k"));
}

bool FitExchanges(const Plan& plan, ZeroOptions& options) {
  if (!options.exchanges()) return true;
  const bool has_groups = plan.shard_groups() > 1;
  options.shard_ranks = has_groups ? plan.ranks() : 0;
  const bool may_be_alone = options.traits().whole_optimizer_state && !has_groups;
  options.optimizer.zero_one.local_step_clipper =
      may_be_alone ? optim::ZeroOneSchedule().local_step_clipper : 1;
  return has_groups || options.traits().whole_parameters;
}

}  // namespace brigade::zero
