#ifndef BRIGADE_REPLICAS_ROUND_PLAN_H_
#define BRIGADE_REPLICAS_ROUND_PLAN_H_

// What a rank needs for rounds, and what it sends in them, before anything is allocated.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/collectives/communicator.h"
#include "brigade/replicas/options.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::replicas {

// The trainable buckets of each fragment: runs of them, cut where the elements so far come nearest
// to an equal share, each with one bucket at least. InvalidArgument naming both numbers if there
// are fewer buckets (ZeroOptions::bucket_elements makes more).
absl::StatusOr<std::vector<std::vector<int>>> FragmentsOf(const zero::Plan& plan, int fragments);

// Elements of a bucket that a rank updates: its slice, in stage 0 all.
int64_t UpdatedElements(const zero::Plan& plan, const zero::ZeroOptions& options,
                        const zero::Bucket& bucket);

// The memory of an OuterOptimizer beside the ZeroOptimizer's, to the byte, without the workspace of
// `between`: with Y elements that a rank updates and K equal fragments 4 Y of outer weights, 4 Y of
// momentum where there is some, 4 Y / K of deltas, and half of that again on a wire of 16 bits.
absl::StatusOr<std::vector<zero::MemoryTerm>> MemoryOf(const zero::Plan& plan,
                                                       const zero::ZeroOptions& zero_options,
                                                       const OuterOptions& options);
// What the communicator between replicas allocates for the rounds.
absl::StatusOr<collectives::Workspace> WorkspaceOfRounds(const zero::Plan& plan,
                                                         const zero::ZeroOptions& zero_options,
                                                         const OuterOptions& options,
                                                         collectives::Communicator& between);
// The memory with that: "workspace of rounds".
absl::StatusOr<std::vector<zero::MemoryTerm>> MemoryOf(const zero::Plan& plan,
                                                       const zero::ZeroOptions& zero_options,
                                                       const OuterOptions& options,
                                                       collectives::Communicator& between);

// What a rank sends in a round of one fragment.
struct RoundTraffic {
  // To the ranks with its place in the other replicas: deltas, 2 (m-1)/m of them.
  int64_t between = 0;
  // Inside the replica, in stages 1 and 2: weights that are gathered once more.
  int64_t parameters = 0;
};
// `inside`: ZeroOptimizer's communicator. Errors of Communicator::Resolve.
absl::StatusOr<RoundTraffic> TrafficOfRound(const zero::Plan& plan,
                                            const zero::ZeroOptions& zero_options,
                                            const OuterOptions& options, int fragment,
                                            collectives::Communicator& inside,
                                            collectives::Communicator& between);

// The same of `steps` steps behind the first `before`, by the schedule.
absl::StatusOr<RoundTraffic> TrafficOfSteps(const zero::Plan& plan,
                                            const zero::ZeroOptions& zero_options,
                                            const OuterOptions& options, int64_t before,
                                            int64_t steps, collectives::Communicator& inside,
                                            collectives::Communicator& between);

namespace internal {

// What a rank has of the fragments: elements of all, of the largest, and of the largest bucket; and
// the most tiles of kernels/grad_check in one.
struct FragmentSizes {
  int64_t all = 0, largest = 0, largest_bucket = 0, most_tiles = 0;
};
FragmentSizes SizesOf(const std::vector<std::vector<int>>& fragments, const zero::Plan& plan,
                      const zero::ZeroOptions& options);

// The sum of a bucket's deltas over replicas.
collectives::CollectiveSignature DeltaSumOf(const OuterOptions& options, int64_t count);

}  // namespace internal

}  // namespace brigade::replicas

#endif  // BRIGADE_REPLICAS_ROUND_PLAN_H_
