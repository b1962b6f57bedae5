#include "brigade/recompute/planner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/recompute/internal/nested.h"
#include "brigade/recompute/internal/reads.h"
#include "brigade/recompute/internal/tables.h"

namespace brigade::recompute {
namespace {

using internal::Choice;

// Calls visit(size) for each size of the chain.
template <typename ChainType, typename Visit>
void VisitSizes(ChainType& chain, const Visit& visit) {
  for (auto& stage : chain.stages) {
    visit(stage.output_bytes);
    visit(stage.gradient_bytes);
    visit(stage.transient_bytes);
    for (auto& option : stage.options) {
      visit(option.saved_bytes);
      visit(option.forward_transient_bytes);
      visit(option.backward_transient_bytes);
    }
  }
}

// The chain with its sizes in units, rounded up.
Chain InUnits(Chain chain, int64_t unit) {
  VisitSizes(chain, [&](int64_t& size) { size = size / unit + (size % unit != 0 ? 1 : 0); });
  return chain;
}

// Peak and time of a schedule. The chain's sizes are in kAlignmentBytes.
Plan Measure(const Chain& chain, std::vector<Operation> operations) {
  const auto input_bytes = [&](int stage) {
    return stage == 0 ? 0 : chain.stages[static_cast<size_t>(stage) - 1].output_bytes;
  };
  const std::vector<Operation> fetching = internal::WithFetches(operations);
  internal::ReadPlaces read(fetching, input_bytes);
  int64_t stack = 0;
  // The passing input of the next operation.
  int64_t passing = 0;
  int64_t gradient = chain.stages.back().gradient_bytes;
  int64_t peak = 0;
  double time = 0;
  for (const Operation& operation : fetching) {
    const Stage& stage = chain.stages[static_cast<size_t>(operation.stage)];
    const SaveOption& option = stage.options[static_cast<size_t>(operation.option)];
    const auto needs = [&](int64_t bytes) {
      peak = std::max(peak, stack + gradient + bytes + read.bytes());
    };
    switch (operation.action) {
      case Action::kForward:
      case Action::kForwardKeep:
        needs(passing + stage.output_bytes + stage.transient_bytes);
        passing = operation.action == Action::kForward ? stage.output_bytes : 0;
        stack += operation.action == Action::kForward ? 0 : stage.output_bytes;
        time += stage.forward_time;
        break;
      case Action::kForwardSave:
        needs(option.saved_bytes + option.forward_transient_bytes);
        stack += option.saved_bytes;
        time += stage.forward_time;
        break;
      case Action::kBackward:
        needs(option.backward_transient_bytes);
        stack -= option.saved_bytes;
        if (operation.stage > 0) {
          gradient = chain.stages[static_cast<size_t>(operation.stage) - 1].gradient_bytes;
        }
        time += option.backward_time;
        break;
      case Action::kDrop:
        if (!read.Drop(operation.stage)) stack -= input_bytes(operation.stage);
        break;
      case Action::kFetch:
        read.Fetch(operation.stage);
        needs(0);
        break;
      case Action::kWrite:
      case Action::kRead:
        break;
    }
  }
  return {.operations = std::move(operations), .peak_bytes = peak * kAlignmentBytes, .time = time};
}

Plan Nested(const Chain& chain, int64_t room, internal::Choose choose) {
  std::vector<Operation> operations;
  internal::AppendNested(0, static_cast<int>(chain.stages.size()) - 1, room, choose, operations);
  return Measure(chain, std::move(operations));
}

std::vector<int> FastestOptions(const Chain& chain) {
  std::vector<int> options;
  for (const Stage& stage : chain.stages) {
    const auto best = std::min_element(stage.options.begin(), stage.options.end(),
                                       [](const auto& a, const auto& b) {
                                         return std::tie(a.backward_time, a.saved_bytes) <
                                                std::tie(b.backward_time, b.saved_bytes);
                                       });
    options.push_back(static_cast<int>(best - stage.options.begin()));
  }
  return options;
}

// Where segments of `length` stages begin, in ascending order. What is elsewhere is one of its own.
std::vector<int> SegmentsOf(const Chain& chain, int length) {
  const auto stages = static_cast<int>(chain.stages.size());
  std::vector<int> begins;
  for (int begin = 0; begin < stages; begin += length) begins.push_back(begin);
  if (chain.stages.back().is_elsewhere && begins.back() != stages - 1) begins.push_back(stages - 1);
  return begins;
}

// Segments that begin at these stages, the first at 0, and save these options.
Plan Segments(const Chain& chain, absl::Span<const int> begins, absl::Span<const int> options) {
  return Nested(chain, 0, [&](int first, int last, int64_t) -> Choice {
    const auto next = std::upper_bound(begins.begin(), begins.end(), first);
    if (next != begins.end() && *next <= last && *(next - 1) == first) return {.split = *next};
    return {.option = options[static_cast<size_t>(first)]};
  });
}

// Every stage saves its option.
Plan OneSegment(const Chain& chain, absl::Span<const int> options) {
  return Segments(chain, {0}, options);
}

// The same with the inputs of segments on a slower tier.
Plan StashedSegments(const Chain& chain, absl::Span<const int> begins,
                     absl::Span<const int> options) {
  const int last = begins.back();
  // The first's is the chain's input, which is the caller's.
  const absl::Span<const int> written = begins.subspan(1);
  std::vector<Operation> operations;
  if (last > 0) internal::AppendWritingForwards(written, last, operations);
  auto end = static_cast<int>(chain.stages.size());
  for (size_t segment = begins.size(); segment-- > 0;) {
    const int begin = begins[segment];
    if (begin > 0 && begin < last) operations.push_back({.action = Action::kRead, .stage = begin});
    internal::AppendNested(
        begin, end - 1, 0,
        [&](int first, int, int64_t) -> Choice {
          return {.option = options[static_cast<size_t>(first)]};
        },
        operations);
    if (begin > 0) operations.push_back({.action = Action::kDrop, .stage = begin});
    end = begin;
  }
  return Measure(chain, std::move(operations));
}

// The unit of a table: all sizes are multiples of it, or the budget has as many as a table takes.
int64_t UnitOf(const Chain& chain, int64_t budget) {
  int64_t unit = 0;
  VisitSizes(chain, [&](int64_t size) { unit = std::gcd(unit, size); });
  unit = std::max<int64_t>(unit, 1);
  const auto stages = static_cast<int64_t>(chain.stages.size());
  const int64_t most =
      std::min(kMaxBudgetUnits, kMaxTableEntries / internal::TableEntries(stages)) - 1;
  return budget / unit <= most ? unit : (budget + most - 1) / most;
}

absl::Status CheckLength(int stages_per_segment) {
  if (stages_per_segment >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("stages_per_segment has to be 1 at least, not ", stages_per_segment));
}

}  // namespace

absl::StatusOr<Plan> PlanNone(const Chain& chain) {
  BRIGADE_RETURN_IF_ERROR(Validate(chain));
  const Chain fine = InUnits(chain, kAlignmentBytes);
  return OneSegment(fine, FastestOptions(fine));
}

absl::StatusOr<Plan> PlanBlocks(const Chain& chain) { return PlanSegments(chain, 1); }

absl::StatusOr<Plan> PlanSelective(const Chain& chain, absl::Span<const int> options) {
  BRIGADE_RETURN_IF_ERROR(Validate(chain));
  if (options.size() != chain.stages.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.size(), " options for a chain of ", chain.stages.size(), " stages"));
  }
  for (size_t s = 0; s < options.size(); ++s) {
    const Stage& stage = chain.stages[s];
    if (options[s] < 0 || static_cast<size_t>(options[s]) >= stage.options.size()) {
      return absl::InvalidArgumentError(absl::StrCat("stage ", s, " (\"", stage.name, "\") has ",
                                                     stage.options.size(), " options, not option ",
                                                     options[s]));
    }
  }
  return OneSegment(InUnits(chain, kAlignmentBytes), options);
}

absl::StatusOr<Plan> PlanSegments(const Chain& chain, int stages_per_segment) {
  BRIGADE_RETURN_IF_ERROR(Validate(chain));
  BRIGADE_RETURN_IF_ERROR(CheckLength(stages_per_segment));
  const Chain fine = InUnits(chain, kAlignmentBytes);
  return Segments(fine, SegmentsOf(fine, stages_per_segment), FastestOptions(fine));
}

absl::StatusOr<Plan> PlanStashedSegments(const Chain& chain, int stages_per_segment) {
  BRIGADE_RETURN_IF_ERROR(Validate(chain));
  BRIGADE_RETURN_IF_ERROR(CheckLength(stages_per_segment));
  const Chain fine = InUnits(chain, kAlignmentBytes);
  return StashedSegments(fine, SegmentsOf(fine, stages_per_segment), FastestOptions(fine));
}

absl::StatusOr<int64_t> LeastBudget(const Chain& chain) {
  BRIGADE_RETURN_IF_ERROR(Validate(chain));
  return internal::PeakTable(InUnits(chain, kAlignmentBytes)).peak() * kAlignmentBytes;
}

absl::StatusOr<Plan> PlanBudget(const Chain& chain, int64_t budget_bytes) {
  BRIGADE_RETURN_IF_ERROR(Validate(chain));
  const Chain fine = InUnits(chain, kAlignmentBytes);
  const internal::PeakTable least(fine);
  if (budget_bytes < least.peak() * kAlignmentBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a budget of ", budget_bytes,
                                                   " bytes is below the least, ",
                                                   least.peak() * kAlignmentBytes));
  }
  const int64_t budget = budget_bytes / kAlignmentBytes;
  const std::vector<int> fastest = FastestOptions(fine);
  const auto stages = static_cast<int>(fine.stages.size());
  // No schedule is faster than this one.
  Plan none = OneSegment(fine, fastest);
  if (none.peak_bytes <= budget_bytes) return none;

  // What a larger unit may leave no room for.
  Plan best = Nested(fine, 0, [&](int first, int last, int64_t) { return least.Get(first, last); });
  const int64_t unit = UnitOf(fine, budget);
  const Chain coarse = InUnits(fine, unit);
  const internal::TimeTable table(coarse, budget / unit);
  if (std::isfinite(table.time())) {
    Plan found = Nested(fine, budget / unit, [&](int first, int last, int64_t room) {
      return table.Get(first, last, room);
    });
    if (found.time <= best.time) best = std::move(found);
  }
  // Nor is it slower than what is known anyway, however large the unit.
  const auto consider = [&](Plan plan) {
    if (plan.peak_bytes <= budget_bytes && plan.time < best.time) best = std::move(plan);
  };
  for (int length = stages - 1; length >= 1; --length) {
    consider(Segments(fine, SegmentsOf(fine, length), fastest));
  }
  size_t options = 0;
  for (const Stage& stage : fine.stages) options = std::max(options, stage.options.size());
  for (size_t option = 0; option < options; ++option) {
    std::vector<int> alike = fastest;
    for (size_t s = 0; s < alike.size(); ++s) {
      if (option < fine.stages[s].options.size()) alike[s] = static_cast<int>(option);
    }
    consider(OneSegment(fine, alike));
  }
  return best;
}

}  // namespace brigade::recompute
