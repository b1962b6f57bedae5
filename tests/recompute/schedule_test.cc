// Plans in an arena: whatever is read is what was written there.

#include "brigade/recompute/schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/recompute/revolve.h"
#include "brigade/tests/recompute/chains.h"
#include "brigade/tests/recompute/simulator.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::recompute {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Of `stages` stages with up to three options and sizes of 0 to 6 units, gradients all of 2.
Chain RandomChain(std::mt19937& random, int stages) {
  const auto units = [&](int64_t least, int64_t most) {
    return kUnit * std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  Chain chain;
  for (int s = 0; s < stages; ++s) {
    Stage stage = {.forward_time = static_cast<double>(1 + random() % 5),
                   .output_bytes = units(0, 4),
                   .gradient_bytes = 2 * kUnit,
                   .transient_bytes = units(0, 3)};
    for (unsigned options = 1 + random() % 3; options-- > 0;) {
      stage.options.push_back({.saved_bytes = stage.output_bytes + units(0, 6),
                               .forward_transient_bytes = units(0, 3),
                               .backward_transient_bytes = units(2, 5),
                               .backward_time = static_cast<double>(1 + random() % 9)});
    }
    chain.stages.push_back(stage);
  }
  return chain;
}

std::vector<Plan> PlansOf(const Chain& chain) {
  std::vector<Plan> plans = {PlanNone(chain).value(), PlanBlocks(chain).value()};
  for (int length = 2; length < static_cast<int>(chain.stages.size()); ++length) {
    plans.push_back(PlanSegments(chain, length).value());
  }
  for (int length = 1; length <= static_cast<int>(chain.stages.size()); ++length) {
    plans.push_back(PlanStashedSegments(chain, length).value());
  }
  const int64_t least = LeastBudget(chain).value(), most = plans[0].peak_bytes;
  for (int64_t budget = least; budget <= most; budget += 3 * kUnit) {
    plans.push_back(PlanBudget(chain, budget).value());
  }
  return plans;
}

// A memory in which every byte says whose it is.
class Paint {
 public:
  explicit Paint(int64_t bytes) : units_(static_cast<size_t>(bytes / kUnit), kNobody) {}

  void Write(int64_t at, int64_t bytes, int color) {
    ForEach(at, bytes, [&](int& unit) { unit = color; });
  }
  bool Has(int64_t at, int64_t bytes, int color) {
    bool has = true;
    ForEach(at, bytes, [&](const int& unit) { has = has && unit == color; });
    return has;
  }

 private:
  static constexpr int kNobody = -1;

  template <typename Use>
  void ForEach(int64_t at, int64_t bytes, const Use& use) {
    for (int64_t unit = at / kUnit; unit < (at + bytes) / kUnit; ++unit) {
      use(units_.at(static_cast<size_t>(unit)));
    }
  }

  std::vector<int> units_;
};

// The copies of a schedule, at the worst of times: to the slower tier as late as operations allow,
// back at once and until the end.
class Copies {
 public:
  Copies(const Schedule& schedule, Paint& arena, int (*color)(int stage))
      : schedule_(schedule), arena_(arena), color_(color) {}

  void Write(const PlacedOperation& placed) { pending_.push_back(placed); }
  // Ends the copies up to this stage's; all, without one. False if they have found something else.
  bool Await(int stage = PlacedOperation::kNone) {
    bool is_right = true, is_over = false;
    while (!pending_.empty() && !is_over) {
      const PlacedOperation& first = pending_.front();
      is_right = is_right && arena_.Has(first.input, BytesOf(first), ColorOf(first));
      is_over = first.operation.stage == stage;
      pending_.erase(pending_.begin());
    }
    return is_right && (is_over || stage == PlacedOperation::kNone);
  }
  void Read(const PlacedOperation& placed) {
    arena_.Write(placed.input, BytesOf(placed), ColorOf(placed));
  }

 private:
  int ColorOf(const PlacedOperation& placed) const { return color_(placed.operation.stage - 1); }
  int64_t BytesOf(const PlacedOperation& placed) const {
    return schedule_.written_bytes[static_cast<size_t>(placed.operation.stage)];
  }

  const Schedule& schedule_;
  Paint& arena_;
  int (*const color_)(int stage);
  std::vector<PlacedOperation> pending_;
};

// Carries out a schedule in a memory of arena_bytes: false where it reads something else than what
// the plan means.
bool Runs(const Chain& chain, const Schedule& schedule) {
  constexpr int kGarbage = 1 << 20;
  const auto output_color = [](int stage) { return 100 * stage; };
  const auto saved_color = [](int stage, int option) { return 100 * stage + 1 + option; };
  Paint arena(schedule.arena_bytes);
  Copies copies(schedule, arena, output_color);
  bool is_right = true;
  for (const PlacedOperation& placed : schedule.operations) {
    const auto& [action, s, o, far_end] = placed.operation;
    const Stage& stage = chain.stages[static_cast<size_t>(s)];
    const SaveOption& option = stage.options[static_cast<size_t>(o)];
    const bool reads_input = Computes(action) || action == Action::kWrite;
    if (placed.after_write != PlacedOperation::kNone && !copies.Await(placed.after_write)) {
      return false;
    }
    if (action == Action::kWrite) copies.Write(placed);
    if (action == Action::kFetch || action == Action::kRead) copies.Read(placed);
    if (reads_input && s > 0) {
      const int64_t bytes = chain.stages[static_cast<size_t>(s) - 1].output_bytes;
      is_right = is_right && arena.Has(placed.input, bytes, output_color(s - 1));
    }
    if (action == Action::kForward || action == Action::kForwardKeep) {
      // The transient bytes are in use until the output is whole.
      arena.Write(placed.output, stage.output_bytes, output_color(s));
      arena.Write(placed.transient, stage.transient_bytes, kGarbage);
      is_right = is_right && arena.Has(placed.output, stage.output_bytes, output_color(s));
    }
    if (action == Action::kForwardSave) {
      arena.Write(placed.saved, option.saved_bytes, saved_color(s, o));
      arena.Write(placed.output, stage.output_bytes, output_color(s));
      arena.Write(placed.transient, option.forward_transient_bytes, kGarbage);
    }
    if (action == Action::kBackward) {
      arena.Write(placed.transient, option.backward_transient_bytes, kGarbage);
      is_right = is_right && arena.Has(placed.saved, stage.output_bytes, output_color(s)) &&
                 arena.Has(placed.saved + stage.output_bytes,
                           option.saved_bytes - stage.output_bytes, saved_color(s, o));
    }
    // Also while the operation works.
    if (reads_input && s > 0) {
      const int64_t bytes = chain.stages[static_cast<size_t>(s) - 1].output_bytes;
      is_right = is_right && arena.Has(placed.input, bytes, output_color(s - 1));
    }
  }
  return is_right && copies.Await();
}

TEST(ScheduleTest, APlanRunsInAnArenaOfItsPeak) {
  std::mt19937 random(1);
  int plans = 0;
  for (int stages = 1; stages <= 8; ++stages) {
    for (int run = 0; run < 30; ++run) {
      const Chain chain = RandomChain(random, stages);
      for (const Plan& plan : PlansOf(chain)) {
        ++plans;
        const absl::StatusOr<Schedule> schedule = Place(chain, plan);
        ASSERT_OK(schedule) << Text(plan.operations);
        // The gradient is beside it.
        EXPECT_EQ(schedule->arena_bytes + 2 * kUnit, plan.peak_bytes) << Text(plan.operations);
        EXPECT_TRUE(Runs(chain, *schedule)) << Text(plan.operations);
      }
    }
  }
  EXPECT_GT(plans, 1000);
}

// In the forward pass an input is copied beside its stage: the stage after it, which has its output
// in the same place, waits. In the backward pass the next one is on its way beside each stage.
TEST(ScheduleTest, KnownScheduleOfBlocksWithAStash) {
  const Chain chain = EqualChain(5, UnitStage(1, 1, 1, {{4, 2}}));
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanStashedSegments(chain, 1));
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, Place(chain, plan));
  std::string text;
  for (const PlacedOperation& placed : schedule.operations) {
    absl::StrAppend(&text, ToString(placed.operation));
    if (placed.input != PlacedOperation::kElsewhere) {
      absl::StrAppend(&text, ", input ", placed.input / kUnit);
    }
    if (placed.output != PlacedOperation::kElsewhere) {
      absl::StrAppend(&text, ", output ", placed.output / kUnit);
    }
    if (placed.after_write != PlacedOperation::kNone) {
      absl::StrAppend(&text, ", after write ", placed.after_write);
    }
    absl::StrAppend(&text, "\n");
  }
  // The second of the places is 4, the first 5.
  EXPECT_EQ(text,
            "forward 0 far, output 5\nwrite 1, input 5\n"
            "forward 1, input 5, output 0\nwrite 2, input 0\n"
            "forward 2 far, input 0, output 5, after write 1\nwrite 3, input 5\n"
            "keep 3, input 5, output 0, after write 2\n"
            "save 4 option 0, input 0, output 1\n"
            "fetch 3, input 5, after write 3\n"
            "backward 4 option 0, input 0\ndrop 4\n"
            "read 3, input 5\nfetch 2, input 4\n"
            "save 3 option 0, input 5, output 0\nbackward 3 option 0, input 5\ndrop 3\n"
            "read 2, input 4\nfetch 1, input 5\n"
            "save 2 option 0, input 4, output 0\nbackward 2 option 0, input 4\ndrop 2\n"
            "read 1, input 5\n"
            "save 1 option 0, input 5, output 0\nbackward 1 option 0, input 5\ndrop 1\n"
            "save 0 option 0, output 0\nbackward 0 option 0\n");
  EXPECT_EQ(schedule.arena_bytes, 6 * kUnit);
  EXPECT_EQ(plan.peak_bytes, 7 * kUnit);
  EXPECT_EQ(schedule.first_of_backward, 8u);
  EXPECT_THAT(schedule.written_bytes, ElementsAre(0, kUnit, kUnit, kUnit, 0));
  EXPECT_EQ(schedule.WrittenBytes(), 3 * kUnit);
  EXPECT_THAT(schedule.BackwardUses(), ElementsAre(4, 3, 2, 1, 0));
  EXPECT_EQ(schedule.Forwards(1), 2);
}

// Of schedules with fetches too, an explicit memory holds no more than the plan says.
TEST(ScheduleTest, AStashHoldsTwoInputsHoweverLongTheChain) {
  for (const int stages : {2, 5, 6, 20}) {
    const Chain chain = EqualChain(stages, UnitStage(1, 1, 1, {{4, 2}}));
    for (int length = 1; length <= 3; ++length) {
      ASSERT_OK_AND_ASSIGN(const Plan plan, PlanStashedSegments(chain, length));
      ASSERT_OK_AND_ASSIGN(const Schedule schedule, Place(chain, plan));
      std::vector<Operation> operations;
      for (const PlacedOperation& placed : schedule.operations) {
        operations.push_back(placed.operation);
      }
      ASSERT_OK_AND_ASSIGN(const Simulation simulation, Simulate(chain, operations));
      EXPECT_EQ(simulation.peak_bytes, plan.peak_bytes) << stages << ", " << length;
      EXPECT_LE(plan.peak_bytes, (4 * length + 2 + 1) * kUnit) << stages << ", " << length;
      EXPECT_EQ(plan.time, PlanSegments(chain, length)->time);
      const int segments = (stages + length - 1) / length;
      EXPECT_EQ(simulation.writes, std::max(segments - 2, 0));
      EXPECT_EQ(schedule.WrittenBytes(), simulation.writes * kUnit);
    }
  }
}

// What DiskRevolve finds is carried out by the same means; the chain's input is not copied.
TEST(ScheduleTest, SchedulesOfDiskRevolveRun) {
  for (const int steps : {1, 2, 4, 7, 16, 48}) {
    const Chain chain = EqualChain(steps, UnitStage(1, 1, 1, {{1, 2}}));
    for (const int checkpoints : {1, 2, 3}) {
      for (const double cost : {0.0, 0.5, 2.0}) {
        ASSERT_OK_AND_ASSIGN(const DiskRevolveSchedule revolve,
                             DiskRevolve(steps, checkpoints, {.write = cost, .read = cost}));
        const absl::StatusOr<Schedule> schedule = Place(chain, {.operations = revolve.operations});
        ASSERT_OK(schedule) << Text(revolve.operations);
        EXPECT_TRUE(Runs(chain, *schedule)) << Text(revolve.operations);
        std::vector<Operation> operations;
        for (const PlacedOperation& placed : schedule->operations) {
          operations.push_back(placed.operation);
        }
        ASSERT_OK_AND_ASSIGN(const Simulation simulation, Simulate(chain, operations));
        EXPECT_GE(schedule->arena_bytes, simulation.peak_bytes - kUnit);
        // The kept states, what is recorded and what passes, and the place of the next one.
        EXPECT_LE(schedule->arena_bytes, (checkpoints + 3) * kUnit);
      }
    }
  }
}

// Sizes that are no multiples: everything begins at one, and the peak is that of rounded sizes.
TEST(ScheduleTest, PlacesAreMultiplesOf256) {
  const Chain chain = EqualChain(
      4, {.forward_time = 1,
          .output_bytes = 100,
          .gradient_bytes = 100,
          .transient_bytes = 300,
          .options = {{.saved_bytes = 1000, .backward_transient_bytes = 257, .backward_time = 1}}});
  for (const Plan& plan : PlansOf(chain)) {
    ASSERT_OK_AND_ASSIGN(const Schedule schedule, Place(chain, plan));
    EXPECT_EQ(schedule.arena_bytes + 256, plan.peak_bytes);
    for (const PlacedOperation& placed : schedule.operations) {
      for (const int64_t at : {placed.input, placed.output, placed.saved, placed.transient}) {
        EXPECT_TRUE(at == PlacedOperation::kElsewhere || at % 256 == 0) << at;
      }
    }
  }
}

// A plan that anybody has changed is refused, or still right.
TEST(ScheduleTest, WhatIsWrongWithAPlanIsFoundBeforeItRuns) {
  std::mt19937 random(2);
  int refused = 0;
  for (int run = 0; run < 200; ++run) {
    const Chain chain = RandomChain(random, 1 + run % 6);
    for (Plan plan : PlansOf(chain)) {
      std::vector<Operation>& operations = plan.operations;
      const auto any = [&] { return random() % operations.size(); };
      switch (run % 4) {
        case 0:
          operations.erase(operations.begin() + static_cast<ptrdiff_t>(any()));
          break;
        case 1:
          std::swap(operations[any()], operations[any()]);
          break;
        case 2: {
          Operation& changed = operations[any()];
          changed.far_end = !changed.far_end;
          break;
        }
        default:
          operations.insert(operations.begin() + static_cast<ptrdiff_t>(any()), operations[any()]);
      }
      const absl::StatusOr<Schedule> schedule = Place(chain, plan);
      if (schedule.ok()) {
        EXPECT_TRUE(Runs(chain, *schedule)) << Text(operations);
      } else {
        ++refused;
        EXPECT_THAT(schedule, StatusIs(kInvalid));
      }
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(ScheduleTest, ErrorsNameTheOperation) {
  const Chain chain = EqualChain(2, UnitStage(1, 1, 1, {{2, 1}}));
  const auto error = [&](std::vector<Operation> operations) {
    return Place(chain, {.operations = std::move(operations)}).status();
  };
  constexpr Operation kSave0 = {Action::kForwardSave, 0}, kSave1 = {Action::kForwardSave, 1};
  constexpr Operation kBack0 = {Action::kBackward, 0}, kBack1 = {Action::kBackward, 1};
  EXPECT_OK(error({kSave0, kSave1, kBack1, kBack0}));
  EXPECT_THAT(error({}), StatusIs(kInvalid, "not all stages have gone backward"));
  EXPECT_THAT(error({kSave0, kSave1, kBack1}), StatusIs(kInvalid, HasSubstr("still kept")));
  EXPECT_THAT(error({kSave1}), StatusIs(kInvalid, "save 1 option 0: its input is not there"));
  EXPECT_THAT(error({kSave0, kBack0}),
              StatusIs(kInvalid, "backward 0 option 0: it is not the next to go backward"));
  EXPECT_THAT(error({kSave0, kBack1}), StatusIs(kInvalid, HasSubstr("not on top of the stack")));
  EXPECT_THAT(error({{Action::kForward, 0}, kSave1}), StatusIs(kInvalid, HasSubstr("passes")));
  // What passes is read, by stage 0 too, which has its input elsewhere.
  EXPECT_THAT(error({{Action::kForward, 0, 0, true}, {Action::kForwardKeep, 0}}),
              StatusIs(kInvalid, "keep 0: another output passes"));
  for (const int stage : {-1, 2, 1 << 30}) {
    EXPECT_THAT(error({{Action::kForward, stage}}), StatusIs(kInvalid, HasSubstr("no such stage")));
    EXPECT_THAT(error({kSave0, kSave1, kBack1, {Action::kRead, stage}}),
                StatusIs(kInvalid, HasSubstr("no such stage")));
  }
  EXPECT_THAT(error({{Action::kForwardSave, 0, 1}}),
              StatusIs(kInvalid, HasSubstr("no such option")));
  EXPECT_THAT(error({{Action::kDrop, 1}}), StatusIs(kInvalid, HasSubstr("is not kept")));
  EXPECT_THAT(error({{Action::kWrite, 1}}), StatusIs(kInvalid, HasSubstr("does not pass")));
  EXPECT_THAT(error({{Action::kForwardKeep, 0}, {Action::kWrite, 1}}),
              StatusIs(kInvalid, HasSubstr("does not pass")));
  constexpr Operation kPass0 = {Action::kForward, 0}, kWrite1 = {Action::kWrite, 1};
  constexpr Operation kRead1 = {Action::kRead, 1};
  EXPECT_THAT(error({kPass0, kWrite1, kWrite1}), StatusIs(kInvalid, HasSubstr("written before")));
  EXPECT_THAT(error({kSave0, kSave1, kBack1, {Action::kWrite, 0}}),
              StatusIs(kInvalid, "write 0: it is written in the backward pass"));
  EXPECT_THAT(error({{Action::kWrite, 0}, kSave0, kSave1, kBack1, kBack0}),
              StatusIs(kInvalid, HasSubstr("stage 0 is still on the slower tier")));
  EXPECT_THAT(error({kSave0, kSave1, kBack1, kRead1}),
              StatusIs(kInvalid, "fetch 1: what it reads is not on the slower tier"));
  EXPECT_THAT(error({{Action::kWrite, 0}, {Action::kRead, 0}, kSave0, kSave1, kBack1, kBack0}),
              StatusIs(kInvalid, HasSubstr("read 0: it is read before the backward pass")));
  EXPECT_THAT(error({{Action::kWrite, 0}, kSave0, kSave1, kBack1, {Action::kRead, 0}, kBack0}),
              StatusIs(kInvalid, HasSubstr("stage 0 is still on the slower tier, or kept")));
  EXPECT_THAT(error({{Action::kForwardKeep, 0, 0, true}}),
              StatusIs(kInvalid, HasSubstr("what is kept lies on the stack")));
}

TEST(ScheduleTest, TellsTheUsesOfStages) {
  const Chain chain = EqualChain(4, UnitStage(1, 1, 1, {{3, 2}}));
  const Schedule none = Place(chain, PlanNone(chain).value()).value();
  EXPECT_THAT(none.BackwardUses(), ElementsAre(3, 2, 1, 0));
  EXPECT_EQ(none.first_of_backward, 4u);
  // Each goes forward again just before it goes backward.
  const Schedule blocks = Place(chain, PlanBlocks(chain).value()).value();
  EXPECT_THAT(blocks.BackwardUses(), ElementsAre(3, 2, 1, 0));
  EXPECT_EQ(blocks.first_of_backward, 4u);
  EXPECT_EQ(blocks.Forwards(0), 2);
  EXPECT_EQ(blocks.Forwards(3), 1);
  const Schedule segments = Place(chain, PlanSegments(chain, 2).value()).value();
  EXPECT_THAT(segments.BackwardUses(), ElementsAre(3, 2, 0, 1, 0));
  EXPECT_EQ(segments.Forwards(1), 2);
  EXPECT_EQ(segments.Forwards(2), 1);
}

}  // namespace
}  // namespace brigade::recompute
