#ifndef BRIGADE_RECOMPUTE_POLICY_H_
#define BRIGADE_RECOMPUTE_POLICY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/planner.h"

namespace brigade::recompute {

// Where the inputs of blocks or segments are between the two passes.
enum class StashTier : uint8_t {
  // In memory, with all that is kept.
  kNone,
  // On the host, or in a file (PlanStashedSegments, stash.h).
  kHost,
  kFile,
};

// Which plan a user wants: planner.h says what they are.
struct Policy {
  enum class Kind { kNone, kBlock, kSelective, kSegments, kBudget };

  Kind kind = Kind::kNone;
  // Of kSegments.
  int stages_per_segment = 1;
  // Of kBudget.
  int64_t budget_bytes = 0;
  // Of kBlock and kSegments.
  StashTier stash = StashTier::kNone;

  bool operator==(const Policy&) const = default;
};

// "none", "block", "selective", "segments:K" with K from 1 on, "budget:BYTES" with BYTES from 1 on,
// perhaps with KiB, MiB or GiB behind it. InvalidArgument naming the text and what it may be.
absl::StatusOr<Policy> ParsePolicy(absl::string_view text);
// The text of a policy, bytes as such, without its stash.
std::string ToString(const Policy& policy);

// "none", "host", "file". InvalidArgument naming the text and what it may be.
absl::StatusOr<StashTier> ParseStashTier(absl::string_view text);

// InvalidArgument for a stash with another policy than block and segments.
absl::Status Validate(const Policy& policy);

// `selective` is the option of each stage for kSelective. Errors of Validate and of the planner.
absl::StatusOr<Plan> PlanBy(const Policy& policy, const Chain& chain,
                            absl::Span<const int> selective);

}  // namespace brigade::recompute

#endif  // BRIGADE_RECOMPUTE_POLICY_H_
