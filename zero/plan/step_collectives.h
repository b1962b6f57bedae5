#ifndef BRIGADE_ZERO_PLAN_STEP_COLLECTIVES_H_
#define BRIGADE_ZERO_PLAN_STEP_COLLECTIVES_H_

// The collectives of a training step, known before the first one runs: what traffic and memory of
// communication follow from.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/plan/traffic.h"

namespace brigade::zero::internal {

// A collective of all ranks of a group, how often a step makes it, and the field of Traffic that
// counts it.
struct StepCollective {
  collectives::CollectiveSignature signature;
  int64_t times = 1;
  int64_t Traffic::*traffic = nullptr;
  StepGroup group = StepGroup::kShards;
};

// Whose communicator that is: ZeRO's own for a group that there is not.
inline collectives::Communicator& GroupOf(StepGroup group, collectives::Communicator& own,
                                          const OuterGroups& outer) {
  if (group == StepGroup::kWorld && outer.world != nullptr) return *outer.world;
  if (group == StepGroup::kTied && outer.tied != nullptr) return *outer.tied;
  if (group == StepGroup::kBetween && outer.between != nullptr) return *outer.between;
  if (group == StepGroup::kNear && outer.near != nullptr) return *outer.near;
  if (group == StepGroup::kNode && outer.node != nullptr) return *outer.node;
  if (group == StepGroup::kNodes && outer.nodes != nullptr) return *outer.nodes;
  return own;
}

// The sum of a bucket's gradients over ranks, in the wire's type: a reduce-scatter, or by an
// algorithm that has no other sum an all-reduce, of which a rank uses its slice.
collectives::CollectiveSignature GradientSumOf(const Plan& plan, const ZeroOptions& options,
                                               const Bucket& bucket);

// The same as codes: the exchange of each hop, once.
absl::InlinedVector<StepCollective, 2> GradientExchangesOf(const Plan& plan,
                                                           const ZeroOptions& options,
                                                           const Bucket& bucket);

// The bytes of the errors of these, which ZeroOptions::loco keeps.
collectives::QuantizedErrorBytes LocoErrorBytesOf(const Plan& plan, const ZeroOptions& options,
                                                  const Bucket& bucket);

// The sum of a bucket's final gradients over groups, in the wire's type: an all-reduce of this
// rank's slice. Where it is rounded once, each group's sum, which is rounded too, is added in fp32
// in the order of the groups.
collectives::CollectiveSignature BetweenSumOf(const Plan& plan, const ZeroOptions& options,
                                              const Bucket& bucket);

// The sum of final gradients that another group has too: of this rank's slice, or in stage 0 of the
// bucket. Two ranks that add in fp32 and round once have the bits of an addition on one.
collectives::CollectiveSignature TiedSumOf(const Plan& plan, const ZeroOptions& options,
                                           const Bucket& bucket);

// How they cross a wire that has another type. The scale is dynamic where values may be out of the
// wire's range: that of float16 is the smallest.
collectives::WireOptions WireOptionsOf(const ZeroOptions& options, precision::DType wire);

// The type in which stage 0 gathers a bucket's gradients: that of the wire where this takes fewer
// bytes and the sum is not added to anything first, also not to those of other groups. None where
// nothing is gathered.
std::optional<precision::DType> GatheredGradientType(const Plan& plan, const ZeroOptions& options,
                                                     const Bucket& bucket);

// The all-gather of parts of `count` elements: by kAuto if the algorithm has none.
collectives::CollectiveSignature AllGatherOf(const ZeroOptions& options, int64_t count,
                                             precision::DType dtype);

// That of a bucket's weights from the slices of all ranks that share a state: as they are, or as
// codes.
collectives::CollectiveSignature WeightGatherOf(const Plan& plan, const ZeroOptions& options,
                                                const Bucket& bucket);

// How often a bucket's weights are gathered in a step: for each use, or each run, or after the
// update, or never.
int64_t WeightGathersOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket);

// How many of these come from second slices alone.
int64_t NearGathersOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket);

// The exchange of a bucket of gradients, its calls that send something. The options' algorithm is
// that of the last one, where that is a gather.
absl::InlinedVector<StepCollective, 4> ExchangeOf(const Plan& plan, const ZeroOptions& options,
                                                  const Bucket& bucket, int rank);

// Of a step of this phase, in no particular order; and of all phases that there are, in turn.
// `rank`: in its group, for exchanges between groups.
std::vector<StepCollective> CollectivesOfStep(const Plan& plan, const ZeroOptions& options,
                                              StepPhase phase, int rank);
std::vector<StepCollective> CollectivesOfStep(const Plan& plan, const ZeroOptions& options,
                                              int rank);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_PLAN_STEP_COLLECTIVES_H_
