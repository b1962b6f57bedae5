#include "brigade/recompute/policy.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "brigade/device/byte_count.h"
#include "brigade/device/status_macros.h"

namespace brigade::recompute {
namespace {

// From 1 on.
bool ParseCount(absl::string_view text, int64_t* count) {
  return absl::SimpleAtoi(text, count) && *count >= 1;
}

}  // namespace

absl::StatusOr<Policy> ParsePolicy(absl::string_view text) {
  if (text == "none") return Policy{};
  if (text == "block") return Policy{.kind = Policy::Kind::kBlock};
  if (text == "selective") return Policy{.kind = Policy::Kind::kSelective};
  absl::string_view value = text;
  if (int64_t count = 0; absl::ConsumePrefix(&value, "segments:") && ParseCount(value, &count) &&
                         count <= std::numeric_limits<int>::max()) {
    return Policy{.kind = Policy::Kind::kSegments, .stages_per_segment = static_cast<int>(count)};
  }
  value = text;
  if (absl::ConsumePrefix(&value, "budget:")) {
    if (const auto bytes = device::ParseByteCount(value); bytes.has_value()) {
      return Policy{.kind = Policy::Kind::kBudget, .budget_bytes = *bytes};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is none of none, block, selective, segments:K and budget:BYTES"));
}

std::string ToString(const Policy& policy) {
  switch (policy.kind) {
    case Policy::Kind::kNone:
      break;
    case Policy::Kind::kBlock:
      return "block";
    case Policy::Kind::kSelective:
      return "selective";
    case Policy::Kind::kSegments:
      return absl::StrCat("segments:", policy.stages_per_segment);
    case Policy::Kind::kBudget:
      return absl::StrCat("budget:", policy.budget_bytes);
  }
  return "none";
}

absl::StatusOr<StashTier> ParseStashTier(absl::string_view text) {
  if (text == "none") return StashTier::kNone;
  if (text == "host") return StashTier::kHost;
  if (text == "file") return StashTier::kFile;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is none of none, host and file"));
}

absl::Status Validate(const Policy& policy) {
  if (policy.stash == StashTier::kNone || policy.kind == Policy::Kind::kBlock ||
      policy.kind == Policy::Kind::kSegments) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a stash is for the inputs of recomputation by block or segments:K, not by ",
                   ToString(policy)));
}

absl::StatusOr<Plan> PlanBy(const Policy& policy, const Chain& chain,
                            absl::Span<const int> selective) {
  BRIGADE_RETURN_IF_ERROR(Validate(policy));
  const bool stashes = policy.stash != StashTier::kNone;
  switch (policy.kind) {
    case Policy::Kind::kNone:
      break;
    case Policy::Kind::kBlock:
      return stashes ? PlanStashedSegments(chain, 1) : PlanBlocks(chain);
    case Policy::Kind::kSelective:
      return PlanSelective(chain, selective);
    case Policy::Kind::kSegments:
      return stashes ? PlanStashedSegments(chain, policy.stages_per_segment)
                     : PlanSegments(chain, policy.stages_per_segment);
    case Policy::Kind::kBudget:
      return PlanBudget(chain, policy.budget_bytes);
  }
  return PlanNone(chain);
}

}  // namespace brigade::recompute
