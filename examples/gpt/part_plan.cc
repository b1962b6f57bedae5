#include "brigade/examples/gpt/part_plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/recompute/planner.h"

namespace brigade::gpt {
namespace {

using recompute::Chain;
using recompute::Plan;
using recompute::Policy;
using recompute::Schedule;

// Each halves what is left of the budgets between the least and all.
constexpr int kBudgetSteps = 12;

int64_t Most(const std::vector<Schedule>& schedules, int64_t Schedule::*bytes) {
  int64_t most = 0;
  for (const Schedule& schedule : schedules) most = std::max(most, schedule.*bytes);
  return most;
}

using PlanChain = absl::FunctionRef<absl::StatusOr<Plan>(const Chain&)>;

absl::StatusOr<PartPlan> PlanEach(const std::vector<Chain>& chains, const ModelPart& part,
                                  const PassSlots& slots, PlanChain plan_chain) {
  PartPlan result = {.part = part, .slots = slots};
  for (const Chain& chain : chains) {
    BRIGADE_ASSIGN_OR_RETURN(const Plan plan, plan_chain(chain));
    BRIGADE_ASSIGN_OR_RETURN(auto schedule, recompute::Place(chain, plan, slots.placement()));
    result.schedules.push_back(std::move(schedule));
    result.time += plan.time;
  }
  return result;
}

absl::StatusOr<PartPlan> PlanWithinBudget(const PassShape& shape, const std::vector<Chain>& chains,
                                          const ModelPart& part, const PassSlots& slots,
                                          int64_t budget) {
  std::optional<PartPlan> best;
  int64_t least = std::numeric_limits<int64_t>::max();
  // Whether it fits.
  const auto consider = [&](PlanChain plan_chain) -> absl::StatusOr<bool> {
    BRIGADE_ASSIGN_OR_RETURN(PartPlan plan, PlanEach(chains, part, slots, plan_chain));
    const int64_t bytes = ActivationBytes(shape, plan);
    least = std::min(least, bytes);
    if (bytes > budget) return false;
    if (!best.has_value() || plan.time < best->time) best = std::move(plan);
    return true;
  };
  // No plan is faster.
  BRIGADE_ASSIGN_OR_RETURN(const bool fits, consider(recompute::PlanNone));
  if (fits) return *std::move(best);

  int64_t low = 0, high = 0;
  size_t stages = 0;
  for (const Chain& chain : chains) {
    BRIGADE_ASSIGN_OR_RETURN(const int64_t least_of_chain, recompute::LeastBudget(chain));
    BRIGADE_ASSIGN_OR_RETURN(const Plan none, recompute::PlanNone(chain));
    low = std::max(low, least_of_chain);
    high = std::max(high, none.peak_bytes);
    stages = std::max(stages, chain.stages.size());
  }
  const auto consider_budget = [&](int64_t of_pass) {
    return consider([&](const Chain& chain) {
      return PlanOf(chain, {.kind = Policy::Kind::kBudget, .budget_bytes = of_pass});
    });
  };
  BRIGADE_RETURN_IF_ERROR(consider_budget(low).status());
  for (int step = 0; step < kBudgetSteps && low < high; ++step) {
    const int64_t middle = low + (high - low) / 2;
    BRIGADE_ASSIGN_OR_RETURN(const bool fits_too, consider_budget(middle));
    (fits_too ? low : high) = middle;
  }
  for (size_t length = 1; length < stages; ++length) {
    BRIGADE_RETURN_IF_ERROR(consider([&](const Chain& chain) {
                              return recompute::PlanSegments(chain, static_cast<int>(length));
                            }).status());
  }
  for (int option = 0; option < kBlockSaveOptionCount; ++option) {
    BRIGADE_RETURN_IF_ERROR(consider([&](const Chain& chain) {
                              std::vector<int> options;
                              for (const recompute::Stage& stage : chain.stages) {
                                options.push_back(stage.options.size() > 1 ? option : 0);
                              }
                              return recompute::PlanSelective(chain, options);
                            }).status());
  }
  if (best.has_value()) return *std::move(best);
  return absl::InvalidArgumentError(absl::StrCat("a budget of ", budget,
                                                 " bytes is below the least, ", least, ", of ",
                                                 slots.activations, " passes in flight"));
}

}  // namespace

int64_t PartPlan::kept_bytes() const { return Most(schedules, &Schedule::kept_bytes); }
int64_t PartPlan::arena_bytes() const { return Most(schedules, &Schedule::arena_bytes); }
int64_t PartPlan::deferred_bytes() const { return Most(schedules, &Schedule::deferred_bytes); }

std::vector<int64_t> PartPlan::written_bytes() const {
  std::vector<int64_t> bytes;
  for (const Schedule& schedule : schedules) {
    bytes.resize(std::max(bytes.size(), schedule.written_bytes.size()));
    for (size_t s = 0; s < schedule.written_bytes.size(); ++s) {
      bytes[s] = std::max(bytes[s], schedule.written_bytes[s]);
    }
  }
  return bytes;
}

int64_t PartPlan::WrittenBytes() const {
  int64_t bytes = 0;
  for (const Schedule& schedule : schedules) bytes += schedule.WrittenBytes();
  return bytes;
}

std::vector<int> PartPlan::BackwardUnits(int chunk) const {
  const StageRange& stages = part.chunks()[static_cast<size_t>(chunk)];
  std::vector<int> units;
  for (const int stage : schedules[static_cast<size_t>(chunk)].BackwardUses()) {
    // What follows elsewhere uses none.
    if (stage < stages.size()) units.push_back(part.UnitOf(stages.first) + stage);
  }
  return units;
}

int64_t ActivationBytes(const PassShape& shape, const PartPlan& plan) {
  return plan.slots.activations * plan.kept_bytes() + plan.arena_bytes() +
         plan.slots.deferred * plan.deferred_bytes() +
         (plan.part.is_whole() ? recompute::AlignedBytes(shape.residual_bytes()) : 0);
}

absl::StatusOr<PartPlan> PlanPart(const PassShape& shape, const PassCosts& costs,
                                  const ModelPart& part, const PassSlots& slots,
                                  const recompute::Policy& policy) {
  BRIGADE_RETURN_IF_ERROR(ModelPart::Validate(shape.model, part.chunks()));
  if (slots.activations < 1 || slots.deferred < 0) {
    return absl::InvalidArgumentError(absl::StrCat("a part of the model has memory for ",
                                                   slots.activations, " passes in flight and ",
                                                   slots.deferred, " deferred ones"));
  }
  std::vector<Chain> chains;
  for (const StageRange& chunk : part.chunks()) {
    chains.push_back(ActivationChain(shape, costs, chunk, slots.splits_backward()));
  }
  if (policy.kind == Policy::Kind::kBudget &&
      (chains.size() > 1 || slots.placement() != recompute::Placement::kArena)) {
    return PlanWithinBudget(shape, chains, part, slots, policy.budget_bytes);
  }
  return PlanEach(chains, part, slots, [&](const Chain& chain) { return PlanOf(chain, policy); });
}

}  // namespace brigade::gpt
