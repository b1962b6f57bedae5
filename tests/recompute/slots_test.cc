// Plans in slots, with several inputs in flight: whatever is read is what was written there for the
// same input, and what others do in between lies elsewhere.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/schedule.h"
#include "brigade/tests/recompute/chains.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::recompute {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

// Sizes of 0 to 6 units, gradients of 0; perhaps with a stage that is elsewhere.
Chain RandomChain(std::mt19937& random, int stages) {
  const auto units = [&](int64_t least, int64_t most) {
    return kUnit * std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const bool ends_elsewhere = random() % 2 == 0;
  Chain chain;
  for (int s = 0; s < stages; ++s) {
    const bool has_output = !ends_elsewhere || s + 1 < stages;
    Stage stage = {.forward_time = static_cast<double>(1 + random() % 5),
                   .output_bytes = has_output ? units(1, 4) : 0,
                   .transient_bytes = units(0, 3)};
    for (unsigned options = 1 + random() % 3; options-- > 0;) {
      stage.options.push_back({.saved_bytes = stage.output_bytes + units(0, 6),
                               .forward_transient_bytes = units(0, 3),
                               .backward_transient_bytes = units(0, 5),
                               .backward_time = static_cast<double>(1 + random() % 9),
                               .deferred_bytes = units(0, 4)});
      const int64_t saved = stage.options.back().saved_bytes - stage.output_bytes;
      stage.options.back().weight_input_bytes =
          std::uniform_int_distribution<int64_t>(0, saved / kUnit)(random) * kUnit;
    }
    chain.stages.push_back(stage);
  }
  if (ends_elsewhere) {
    chain.stages.push_back({.name = "next part", .options = {SaveOption()}, .is_elsewhere = true});
  }
  return chain;
}

std::vector<Plan> PlansOf(const Chain& chain, std::mt19937& random) {
  const int stages = static_cast<int>(chain.stages.size());
  std::vector<Plan> plans = {PlanNone(chain).value()};
  for (int length = 1; length <= stages; ++length) {
    plans.push_back(PlanSegments(chain, length).value());
    plans.push_back(PlanStashedSegments(chain, length).value());
  }
  const int64_t least = LeastBudget(chain).value(), most = plans[0].peak_bytes;
  for (int i = 0; i < 3; ++i) {
    const int64_t budget = std::uniform_int_distribution<int64_t>(least, most)(random);
    plans.push_back(PlanBudget(chain, budget).value());
  }
  return plans;
}

// The memory of all passes, unit by unit, with the number of what was written there last.
class Memory {
 public:
  Memory(const Chain& chain, const Schedule& schedule, int slots)
      : chain_(chain),
        schedule_(schedule),
        kept_(static_cast<size_t>(slots), Units(schedule.kept_bytes)),
        arena_(Units(schedule.arena_bytes)),
        deferred_(static_cast<size_t>(slots), Units(schedule.deferred_bytes)),
        inputs_(static_cast<size_t>(slots)) {}

  void Forward(int slot) { Run(slot, 0, schedule_.first_of_backward); }
  void Backward(int slot) { Run(slot, schedule_.first_of_backward, schedule_.operations.size()); }
  // What the gradients of weights read: what was saved, and what was left for them.
  void Weights(int slot) {
    Begin(slot);
    for (const PlacedOperation& placed : schedule_.operations) {
      if (placed.operation.action != Action::kBackward) continue;
      const SaveOption& option = OptionOf(placed);
      Input& input = inputs_[static_cast<size_t>(slot)];
      const int number = input.saved[placed.operation.stage];
      if (placed.weight_inputs == PlacedOperation::kElsewhere) {
        Expect(placed.saved, option.saved_bytes, number, placed);
      } else {
        Expect(placed.weight_inputs, option.weight_input_bytes, number, placed);
      }
      Expect(placed.deferred, option.deferred_bytes, input.deferred[placed.operation.stage],
             placed);
    }
  }

 private:
  static std::vector<int> Units(int64_t bytes) {
    return std::vector<int>(static_cast<size_t>(bytes / kUnit), 0);
  }
  // By stage, what was written of it for one input.
  struct Input {
    std::map<int, int> outputs, saved, deferred;
  };

  const SaveOption& OptionOf(const PlacedOperation& placed) const {
    return chain_.stages[static_cast<size_t>(placed.operation.stage)]
        .options[static_cast<size_t>(placed.operation.option)];
  }

  // Where `saved` is.
  int64_t SavedBytes(const PlacedOperation& placed) const {
    const SaveOption& option = OptionOf(placed);
    const bool is_apart = placed.weight_inputs != PlacedOperation::kElsewhere;
    return option.saved_bytes - (is_apart ? option.weight_input_bytes : 0);
  }

  // Nothing in the arena is from the pass before.
  void Begin(int slot) {
    slot_ = slot;
    std::fill(arena_.begin(), arena_.end(), ++number_);
  }

  // The units of an array, all in one region.
  absl::Span<int> At(int64_t offset, int64_t bytes, const PlacedOperation& placed) {
    if (bytes == 0) return {};
    const int64_t arena_end = schedule_.kept_bytes + schedule_.arena_bytes;
    std::vector<int>& region = offset < schedule_.kept_bytes ? kept_[static_cast<size_t>(slot_)]
                               : offset < arena_end          ? arena_
                                                    : deferred_[static_cast<size_t>(slot_)];
    const int64_t begin = offset < schedule_.kept_bytes ? 0
                          : offset < arena_end          ? schedule_.kept_bytes
                                                        : arena_end;
    const auto first = static_cast<size_t>((offset - begin) / kUnit),
               count = static_cast<size_t>(bytes / kUnit);
    EXPECT_EQ(offset % kUnit, 0);
    EXPECT_TRUE(offset >= 0 && first + count <= region.size()) << ToString(placed.operation);
    if (offset < 0 || first + count > region.size()) return {};
    return absl::MakeSpan(region).subspan(first, count);
  }
  int Write(int64_t offset, int64_t bytes, const PlacedOperation& placed) {
    ++number_;
    for (int& unit : At(offset, bytes, placed)) unit = number_;
    return number_;
  }
  void Expect(int64_t offset, int64_t bytes, int number, const PlacedOperation& placed) {
    for (const int unit : At(offset, bytes, placed)) {
      EXPECT_EQ(unit, number) << ToString(placed.operation);
    }
  }

  void Run(int slot, size_t begin, size_t end) {
    Begin(slot);
    Input& input = inputs_[static_cast<size_t>(slot)];
    for (size_t i = begin; i < end; ++i) {
      const PlacedOperation& placed = schedule_.operations[i];
      const int s = placed.operation.stage;
      const Stage& stage = chain_.stages[static_cast<size_t>(s)];
      const SaveOption& option = OptionOf(placed);
      const int64_t input_bytes =
          s == 0 ? 0 : chain_.stages[static_cast<size_t>(s) - 1].output_bytes;
      const auto reads_input = [&] {
        Expect(placed.input, input_bytes, input.outputs[s - 1], placed);
      };
      switch (placed.operation.action) {
        case Action::kForward:
        case Action::kForwardKeep:
          Write(placed.transient, stage.transient_bytes, placed);
          input.outputs[s] = Write(placed.output, stage.output_bytes, placed);
          reads_input();
          break;
        case Action::kForwardSave:
          Write(placed.transient, option.forward_transient_bytes, placed);
          input.outputs[s] = input.saved[s] = Write(placed.saved, SavedBytes(placed), placed);
          if (placed.weight_inputs != PlacedOperation::kElsewhere) {
            for (int& unit : At(placed.weight_inputs, option.weight_input_bytes, placed)) {
              unit = number_;
            }
          }
          reads_input();
          break;
        case Action::kBackward:
          Write(placed.transient, option.backward_transient_bytes, placed);
          input.deferred[s] = schedule_.deferred_bytes == 0
                                  ? 0
                                  : Write(placed.deferred, option.deferred_bytes, placed);
          Expect(placed.saved, SavedBytes(placed), input.saved[s], placed);
          reads_input();
          break;
        case Action::kFetch:
          input.outputs[s - 1] = Write(placed.input, input_bytes, placed);
          break;
        case Action::kWrite:
        case Action::kRead:
          reads_input();
          break;
        case Action::kDrop:
          break;
      }
    }
  }

  const Chain& chain_;
  const Schedule& schedule_;
  std::vector<std::vector<int>> kept_;
  std::vector<int> arena_;
  std::vector<std::vector<int>> deferred_;
  std::vector<Input> inputs_;
  int slot_ = 0;
  int number_ = 0;
};

TEST(SlotsTest, NothingThatIsReadLaterIsWrittenOver) {
  std::mt19937 random(4);
  for (int round = 0; round < 150; ++round) {
    const Chain chain = RandomChain(random, 1 + static_cast<int>(random() % 7));
    for (const Plan& plan : PlansOf(chain, random)) {
      for (const Placement placement : {Placement::kSlots, Placement::kSplitSlots}) {
        const auto schedule = Place(chain, plan, placement);
        ASSERT_OK(schedule);
        constexpr int kSlots = 3;
        Memory memory(chain, *schedule, kSlots);
        // As in a pipeline: forward passes ahead, then by turns, gradients of weights behind.
        for (int i = 0; i < 2; ++i) memory.Forward(i);
        for (int i = 0; i < 7; ++i) {
          memory.Forward((i + 2) % kSlots);
          memory.Backward(i % kSlots);
          if (placement == Placement::kSplitSlots) memory.Weights(i % kSlots);
        }
        memory.Backward(7 % kSlots);
        memory.Backward(8 % kSlots);
        if (placement == Placement::kSplitSlots) {
          memory.Weights(7 % kSlots);
          memory.Weights(8 % kSlots);
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Three stages of outputs of 1 unit that save 4, 5 and 6, with transient units in all passes.
Chain KnownChain(bool ends_elsewhere) {
  Chain chain;
  for (int64_t s = 0; s < 3; ++s) {
    const int64_t output = ends_elsewhere && s == 2 ? 0 : kUnit;
    chain.stages.push_back({.forward_time = 1,
                            .output_bytes = output,
                            .transient_bytes = 3 * kUnit,
                            .options = {{.saved_bytes = (3 + s) * kUnit + output,
                                         .forward_transient_bytes = 2 * kUnit,
                                         .backward_transient_bytes = (7 + s) * kUnit,
                                         .backward_time = 2,
                                         .deferred_bytes = (10 + s) * kUnit,
                                         .weight_input_bytes = (1 + s) * kUnit}}});
  }
  if (ends_elsewhere) {
    chain.stages.push_back({.name = "next part", .options = {SaveOption()}, .is_elsewhere = true});
  }
  return chain;
}

void ExpectUnits(const Schedule& schedule, int64_t kept, int64_t arena, int64_t deferred) {
  EXPECT_EQ(schedule.kept_bytes, kept * kUnit);
  EXPECT_EQ(schedule.arena_bytes, arena * kUnit);
  EXPECT_EQ(schedule.deferred_bytes, deferred * kUnit);
}

TEST(SlotsTest, RegionsHaveTheKnownSizes) {
  const Chain whole = KnownChain(false), part = KnownChain(true);
  // All is saved; the arena has what is there during a pass.
  const Plan none = PlanNone(whole).value(), none_of_part = PlanNone(part).value();
  ExpectUnits(Place(whole, none, Placement::kSlots).value(), 4 + 5 + 6, 9, 0);
  ExpectUnits(Place(whole, none, Placement::kSplitSlots).value(), 4 + 5 + 6, 9, 10 + 11 + 12);
  ExpectUnits(Place(part, none_of_part, Placement::kSplitSlots).value(), 4 + 5 + 5, 9, 33);
  // The inputs of the last two stages, and what the last one saves as it goes backward at once; the
  // others save in the backward pass, in the arena; if it is split, what gradients of weights read
  // of that stays.
  const Plan blocks = PlanBlocks(whole).value(), blocks_of_part = PlanBlocks(part).value();
  ExpectUnits(Place(whole, blocks, Placement::kSlots).value(), 1 + 1 + 6, 5 + 8, 0);
  ExpectUnits(Place(whole, blocks, Placement::kSplitSlots).value(), 1 + 1 + 6, 3 + 8, 33 + 1 + 2);
  // Of a part the last one does not.
  ExpectUnits(Place(part, blocks_of_part, Placement::kSlots).value(), 1 + 1, 5 + 9, 0);
  ExpectUnits(Place(part, blocks_of_part, Placement::kSplitSlots).value(), 1 + 1, 2 + 9,
              33 + 1 + 2 + 3);
  // Inputs are on the slower tier, and two of them at the arena's end when they come back; the
  // forward pass has an input and an output that pass.
  const Plan stashed = PlanStashedSegments(part, 1).value();
  ExpectUnits(Place(part, stashed, Placement::kSlots).value(), 0, 5 + 9 + 2, 0);
}

TEST(SlotsTest, SegmentsBeginAgainBeforeWhatIsElsewhere) {
  const Chain part = KnownChain(true);
  const auto forwards = [&](const Plan& plan, int stage) {
    return Place(part, plan).value().Forwards(stage);
  };
  for (int length = 1; length <= 5; ++length) {
    const Plan plan = PlanSegments(part, length).value();
    for (int stage = 0; stage < 3; ++stage) EXPECT_EQ(forwards(plan, stage), 2) << length;
  }
  EXPECT_EQ(forwards(PlanNone(part).value(), 2), 1);
  EXPECT_EQ(forwards(PlanSelective(part, {0, 0, 0, 0}).value(), 2), 1);
}

TEST(SlotsTest, AStageThatIsElsewhereHasNothingAndIsTheLast) {
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is elsewhere"));
  Chain chain = KnownChain(true);
  EXPECT_OK(Validate(chain));
  chain.stages[1].is_elsewhere = true;
  EXPECT_THAT(Validate(chain), invalid);
  chain = KnownChain(true);
  chain.stages.back().options[0].saved_bytes = 1;
  EXPECT_THAT(Validate(chain), invalid);
  chain = KnownChain(true);
  chain.stages.back().gradient_bytes = 1;
  EXPECT_THAT(Validate(chain), invalid);
  chain = KnownChain(true);
  chain.stages.back().forward_time = 1;
  EXPECT_THAT(Validate(chain), invalid);
  chain = KnownChain(true);
  chain.stages.back().options.emplace_back();
  EXPECT_THAT(Validate(chain), invalid);
  EXPECT_THAT(Validate({.stages = {{.options = {SaveOption()}, .is_elsewhere = true}}}), invalid);
  chain = KnownChain(false);
  chain.stages[1].options[0].weight_input_bytes = 5 * kUnit + 1;
  EXPECT_THAT(Validate(chain), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("weight_input_bytes of 1281 are no part of "
                                                  "saved_bytes of 1280")));
  chain = KnownChain(false);
  chain.stages[0].options[0].deferred_bytes = -1;
  EXPECT_THAT(Validate(chain), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("deferred_bytes is negative")));
}

}  // namespace
}  // namespace brigade::recompute
