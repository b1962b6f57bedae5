#ifndef BRIGADE_TRAIN_CONFIG_CONFIG_RULES_H_
#define BRIGADE_TRAIN_CONFIG_CONFIG_RULES_H_

// What keys and flags say beside one another.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "brigade/recompute/policy.h"
#include "brigade/train/config/config.h"
#include "brigade/train/config/config_grid.h"
#include "brigade/train/config/config_keys.h"
#include "brigade/train/config/json_reader.h"

namespace brigade::train {

// A key or a flag that is right by itself, but not beside the others.
struct Rule {
  enum class Kind : uint8_t {
    // Where it is given it is refused.
    kRefused,
    // Where it is given it has no effect, and changes no result.
    kHarmless,
    // Where it is not given it is missing.
    kMissing,
  };
  // "fp16.loss_scale", "--lr".
  std::string path;
  // Otherwise `why_not`.
  bool is_right;
  std::string why_not;
  // The keys, flags and objects by which it and its text go beside its own, with blanks between;
  // and those of rules before it by which its key has no effect.
  std::string others;
  Kind kind = Kind::kRefused;
};
using Rules = std::vector<Rule>;

// One behind the other.
Rules Joined(const std::vector<Rules>& parts);

// Lists that `others` may have: what says how many ranks share matrices, texts, layers and a state,
// and how many replicas there are.
inline constexpr char kTensorRanks[] =
    "tensor_parallel.autotp_size tensor_parallel.tp.tp_size "
    "tensor_parallel.tensor_parallel.tp_size --tensor";
inline constexpr char kContextRanks[] = "sequence_parallel_size --context_parallel";
inline constexpr char kStages[] = "pipeline.stages --pipeline";
inline constexpr char kShardRanks[] =
    "zero_optimization.mics_shard_size brigade.shard_ranks --shard_ranks";
inline constexpr char kReplicas[] = "brigade.replicas --replicas";

// Several such lists as one.
std::string Names(std::initializer_list<absl::string_view> lists);

// What rules go by.
struct Together {
  const Said& said;
  const Settings& settings;
  const Sharing& sharing;
  recompute::Policy policy;
};

// Of flags' own numbers; keys have their ranges in the table.
Rules FlagRules(const Said& said);

// The rules of the sections, like their keys (config_sections.h).
Rules OptimizerRules(const Together& together);
Rules ParallelRules(const Together& together);
Rules ZeroRules(const Together& together);

// Adds what is not right: to what is refused, or to what has no effect. Of several rules for one
// key the first counts. A rule is left out where its own key is not known, or one of `others`.
void CheckRules(const Together& together, Reading& reading);

// Of all files.
const std::optional<std::string>& Directory(const Settings& settings);

recompute::Policy PolicyOf(const Json& config, const Settings& settings);

// Of weights and gradients.
precision::DType TypeOf(const Settings& settings);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_CONFIG_RULES_H_
