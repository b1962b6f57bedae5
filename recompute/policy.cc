#include "brigade/recompute/policy.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "brigade/device/byte_count.h"

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

absl::StatusOr<Plan> PlanBy(const Policy& policy, const Chain& chain,
                            absl::Span<const int> selective) {
  switch (policy.kind) {
    case Policy::Kind::kNone:
      break;
    case Policy::Kind::kBlock:
      return PlanBlocks(chain);
    case Policy::Kind::kSelective:
      return PlanSelective(chain, selective);
    case Policy::Kind::kSegments:
      return PlanSegments(chain, policy.stages_per_segment);
    case Policy::Kind::kBudget:
      return PlanBudget(chain, policy.budget_bytes);
  }
  return PlanNone(chain);
}

}  // namespace brigade::recompute
