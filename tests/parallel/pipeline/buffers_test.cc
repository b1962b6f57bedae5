#include "brigade/parallel/pipeline/buffers.h"

#include <map>
#include <string>
#include <utility>

#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

// Goes along a list with buffers in hand: each is given to one pass at a time.
class Walk {
 public:
  Walk(const PipelineSchedule& schedule, int stage, const BufferPlan& plan)
      : shape_(schedule.shape), stage_(stage), plan_(plan) {
    for (const PipelineItem& item : schedule.lists[static_cast<size_t>(stage)]) Do(item);
    EXPECT_TRUE(held_.empty());
  }

 private:
  enum Sort { kActivations, kInputs, kOutputs, kOutputGradients, kInputGradients, kDeferred };

  bool IsLocal(ItemKind transfer, int chunk, int part) const {
    return part >= 0 && part < shape_.parts() &&
           !PeerOf(shape_, stage_, {transfer, chunk, 0}).has_value();
  }

  void Do(const PipelineItem& item) {
    const auto [kind, chunk, i] = item;
    if (kind == ItemKind::kCollective) return;
    const PassBuffers& its = plan_.Of(chunk, i);
    const int part = PartOf(shape_, stage_, chunk);
    const auto other = [&](int that) -> const PassBuffers& {
      return plan_.Of(PlaceOf(shape_, that).chunk, i);
    };
    switch (kind) {
      case ItemKind::kReceiveActivation:
        return Take(kInputs, its.inputs);
      case ItemKind::kReceiveGradient:
        return Take(kOutputGradients, its.output_gradients);
      case ItemKind::kSendActivation:
        return Give(kOutputs, its.outputs);
      case ItemKind::kSendGradient:
        return Give(kInputGradients, its.input_gradients);
      case ItemKind::kForward:
        Take(kActivations, its.activations);
        if (IsLocal(ItemKind::kSendActivation, chunk, part + 1)) {
          Take(kInputs, other(part + 1).inputs);
        } else if (part + 1 < shape_.parts()) {
          Take(kOutputs, its.outputs);
        }
        return;
      case ItemKind::kBackward:
      case ItemKind::kBackwardInput:
        if (IsLocal(ItemKind::kSendGradient, chunk, part - 1)) {
          Take(kOutputGradients, other(part - 1).output_gradients);
        } else if (part > 0) {
          Take(kInputGradients, its.input_gradients);
        }
        if (kind == ItemKind::kBackwardInput) return Take(kDeferred, its.deferred);
        break;
      default:
        Give(kDeferred, its.deferred);
    }
    Give(kActivations, its.activations);
    if (part > 0) Give(kInputs, its.inputs);
    if (part + 1 < shape_.parts()) Give(kOutputGradients, its.output_gradients);
  }

  void Take(Sort sort, int number) {
    EXPECT_NE(number, PassBuffers::kNone);
    EXPECT_TRUE(held_.insert({{sort, number}, true}).second) << sort << " " << number;
  }
  void Give(Sort sort, int number) { EXPECT_EQ(held_.erase({sort, number}), 1u) << sort; }

  const PipelineShape& shape_;
  const int stage_;
  const BufferPlan& plan_;
  std::map<std::pair<Sort, int>, bool> held_;
};

TEST(BuffersTest, NoBufferIsOfTwoPassesAtATime) {
  for (const char* const name :
       {"gpipe", "1f1b", "interleaved:2", "interleaved:3", "zb-h1", "zb-v"}) {
    for (int p = 1; p <= 4; ++p) {
      for (const int m : {1, 2, 4, 6, 12}) {
        const PipelineShape shape = {ParseSchedule(name).value(), p, m};
        if (!Validate(shape).ok()) continue;
        const PipelineSchedule schedule = CreateSchedule(shape).value();
        for (int stage = 0; stage < p; ++stage) {
          SCOPED_TRACE(std::string(name) + " " + std::to_string(p) + " " + std::to_string(m));
          const ListIndex index = ListIndex::Create(schedule, stage).value();
          for (const int spare : {0, 1}) {
            Walk(schedule, stage, BufferPlan(schedule, stage, index, spare));
          }
        }
      }
    }
  }
}

TEST(BuffersTest, WhatIsSentHasSpareBuffersWhereItHasPassesForThem) {
  const PipelineSchedule schedule = CreateSchedule({ParseSchedule("1f1b").value(), 2, 2}).value();
  const ListIndex index = ListIndex::Create(schedule, 0).value();
  EXPECT_EQ(BufferPlan(schedule, 0, index).counts(),
            (StageBuffers{.activations = 2, .outputs = 1, .output_gradients = 1}));
  const BufferPlan plan(schedule, 0, index, 1);
  EXPECT_EQ(plan.counts(), (StageBuffers{.activations = 2, .outputs = 2, .output_gradients = 1}));
  EXPECT_NE(plan.Of(0, 0).outputs, plan.Of(0, 1).outputs);
  EXPECT_EQ(plan.Of(0, 0).inputs, PassBuffers::kNone);
  // Two passes, and no more than two buffers.
  EXPECT_EQ(BufferPlan(schedule, 0, index, 5).counts().outputs, 2);
}

}  // namespace
}  // namespace brigade::parallel
