#ifndef BRIGADE_EXAMPLES_GPT_PART_PLAN_H_
#define BRIGADE_EXAMPLES_GPT_PART_PLAN_H_

// What a rank keeps of the passes of its part of the model: by which schedule, and how often.

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/recompute/policy.h"
#include "brigade/recompute/schedule.h"

namespace brigade::gpt {

// How many passes are in flight on a rank (parallel::StageBuffers): from the forward pass of a
// chunk and a micro-batch to its backward pass, or to its gradients of weights; and between its
// gradients of inputs and of weights, 0 where the backward pass is not split.
struct PassSlots {
  int activations = 1;
  int deferred = 0;

  bool splits_backward() const { return deferred > 0; }
  recompute::Placement placement() const {
    return splits_backward() ? recompute::Placement::kSplitSlots
           : activations > 1 ? recompute::Placement::kSlots
                             : recompute::Placement::kArena;
  }
};

struct PartPlan {
  // The whole model, a micro-batch at a time, by a schedule with Placement::kArena.
  static PartPlan Whole(const ModelOptions& model, recompute::Schedule schedule) {
    return {.part = ModelPart(model), .schedules = {std::move(schedule)}};
  }

  ModelPart part;
  PassSlots slots = {};
  // Of each chunk, of ActivationChain of its stages, placed as slots.placement() says.
  std::vector<recompute::Schedule> schedules = {};
  // Of the passes over a micro-batch, in the unit of the costs.
  double time = 0;

  // Of a slot of each sort, and of what all passes share.
  int64_t kept_bytes() const;
  int64_t arena_bytes() const;
  int64_t deferred_bytes() const;
  // For each slot of the stash, by the chunk's stages: what the largest chunk writes.
  std::vector<int64_t> written_bytes() const;
  // What goes to the slower tier in the forward passes over a micro-batch.
  int64_t WrittenBytes() const;

  // The units whose weights the chunk's backward pass, or its gradients of inputs, use, in this
  // order (ZeroOptions::backward_units).
  std::vector<int> BackwardUnits(int chunk) const;
};

// All that the passes have on the device: activations, what they share, and, where the part is the
// whole model, the gradient of the residual stream, which else is the caller's.
int64_t ActivationBytes(const PassShape& shape, const PartPlan& plan);

// By a policy for each chunk, the same on all ranks that have the part. A budget is for
// ActivationBytes: with more than one chunk or slot the plan is the fastest one within it of those
// that a planner finds for some budget of a single pass, and of segments of one length and of one
// option for all blocks.
// InvalidArgument for bad chunks or slots, and for a budget that is too small, naming the least.
absl::StatusOr<PartPlan> PlanPart(const PassShape& shape, const PassCosts& costs,
                                  const ModelPart& part, const PassSlots& slots,
                                  const recompute::Policy& policy);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_PART_PLAN_H_
