#include "brigade/parallel/pipeline/simulate.h"

#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "brigade/parallel/pipeline/check.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/tests/parallel/pipeline/peaks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of times whose sums are not exact.
constexpr double kNear = 1e-9;

PipelineShape Shape(const std::string& name, int stages, int micro_batches) {
  return {*ParseSchedule(name), stages, micro_batches};
}

Simulation Simulated(const PipelineShape& shape, const StageTimes& times = {}, double transfer = 0,
                     ChannelModel channels = ChannelModel::kOnePerEdge) {
  PipelineTimes all = EqualTimes(shape, times);
  all.transfer = transfer;
  all.channels = channels;
  const auto simulation = Simulate(*CreateSchedule(shape), all);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return *simulation;
}

std::vector<int64_t> Peaks(const PipelineShape& shape) {
  return PeakActivationBytes(*CreateSchedule(shape),
                             std::vector<int64_t>(static_cast<size_t>(shape.parts()), 1));
}

TEST(SimulateTest, TakesThePublishedTimesAndKeepsThePublishedActivations) {
  struct Case {
    const char* name;
    int stages, micro_batches;
    StageTimes times;
    double makespan, work;
    std::vector<int64_t> peaks;
  };
  const StageTimes ones = {1, 1, 1}, two_chunks = {2, 2, 2};
  for (const Case& each : std::vector<Case>{
           {"gpipe", 4, 8, ones, 33, 24, {8, 8, 8, 8}},
           {"1f1b", 4, 8, ones, 33, 24, {4, 3, 2, 1}},
           {"zb-h1", 4, 8, ones, 27, 24, {4, 4, 4, 4}},
           {"interleaved:2", 2, 4, two_chunks, 27, 24, {5, 3}},
           {"interleaved:2", 4, 8, two_chunks, 57, 48, {11, 9, 7, 5}},
           {"interleaved:2", 4, 4, two_chunks, 33, 24, {8, 8, 7, 5}},
           {"interleaved:2", 2, 2, two_chunks, 15, 12, {4, 3}},
           {"zb-h1", 2, 4, ones, 13, 12, {2, 2}},
           {"zb-h1", 3, 6, ones, 20, 18, {3, 3, 3}},
           {"zb-h1", 8, 16, ones, 55, 48, {8, 8, 8, 8, 8, 8, 8, 8}},
           {"zb-h1", 4, 8, {2, 3, 1}, 60, 48, {4, 4, 4, 4}},
           {"zb-h1", 4, 8, {1, 1.2, 0.8}, 28.2, 24, {4, 4, 4, 4}},
       }) {
    const PipelineShape shape = Shape(each.name, each.stages, each.micro_batches);
    const Simulation simulation = Simulated(shape, each.times);
    EXPECT_THAT(simulation.makespan, DoubleNear(each.makespan, kNear)) << each.name;
    for (const double work : simulation.work) EXPECT_THAT(work, DoubleNear(each.work, kNear));
    EXPECT_THAT(simulation.Bubble(), DoubleNear(each.makespan - each.work, kNear));
    EXPECT_EQ(Peaks(shape), each.peaks) << each.name;
  }
}

// As in parallel/pipeline/README.md.
TEST(SimulateTest, RunsAndProvesAScheduleByItsName) {
  ASSERT_OK_AND_ASSIGN(const ScheduleChoice choice, ParseSchedule("zb-h1"));
  ASSERT_OK_AND_ASSIGN(const PipelineSchedule schedule,
                       CreateSchedule({choice, /*stages=*/4, /*micro_batches=*/8}));
  ASSERT_OK_AND_ASSIGN(const std::vector<StageBuffers> buffers, Check(schedule));
  ASSERT_OK_AND_ASSIGN(const Simulation step,
                       Simulate(schedule, EqualTimes(schedule.shape, {.forward = 1})));
  EXPECT_EQ(buffers.size(), 4u);
  EXPECT_EQ(step.makespan, 27);
}

// By the measure of its authors. The last stage begins and ends p - 1 chunks later than the first.
TEST(SimulateTest, ZeroBubbleVHasNoBubbleWhereAllPassesTakeEquallyLong) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 2 * p - 1; m <= 19; ++m) {
      const PipelineShape shape = Shape("zb-v", p, m);
      const Simulation simulation = Simulated(shape, {2, 2, 2});
      EXPECT_EQ(simulation.LongestWait(), 0);
      EXPECT_EQ(simulation.makespan, 6 * m + p - 1);
      for (const int64_t peak : Peaks(shape)) EXPECT_EQ(peak, 2 * p);
    }
  }
  EXPECT_EQ(Simulated(Shape("zb-v", 4, 6), {2, 2, 2}).LongestWait(), 2);
  // With other times it has one (docs/pipeline.md).
  EXPECT_EQ(Simulated(Shape("zb-v", 4, 8), {2, 3, 1}).makespan, 54);
  // By the same measure others have the bubbles that they have as a whole.
  EXPECT_EQ(Simulated(Shape("1f1b", 4, 8)).LongestWait(), 9);
  EXPECT_EQ(Simulated(Shape("zb-h1", 4, 8)).LongestWait(), 3);
}

TEST(SimulateTest, BubblesAreTheClosedFormsOfAllTimes) {
  std::mt19937 random(7);
  for (const char* const name :
       {"gpipe", "1f1b", "interleaved:2", "interleaved:3", "zb-h1", "zb-v"}) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 19; ++m) {
        const PipelineShape shape = Shape(name, p, m);
        if (!Validate(shape).ok()) continue;
        // Multiples of the chunks: all sums are exact.
        const double f = static_cast<double>(6 * (1 + random() % 9));
        const StageTimes times = {f, m % 3 == 0 ? f : static_cast<double>(6 * (1 + random() % 9)),
                                  m % 3 == 0 ? f : static_cast<double>(6 * (1 + random() % 9))};
        const Simulation simulation = Simulated(shape, times);
        if (const auto bubble = Bubble(shape, times); bubble.has_value()) {
          EXPECT_EQ(simulation.Bubble(), *bubble) << name << " " << p << " " << m;
        } else {
          EXPECT_EQ(std::string(name), "zb-v");
        }
      }
    }
  }
}

TEST(SimulateTest, StagesMayDiffer) {
  const auto makespan = [](const char* name) {
    const PipelineSchedule schedule = *CreateSchedule(Shape(name, 4, 8));
    const std::vector<double> forward = {1, 2, 1, 1};
    return Simulate(schedule,
                    {.forward = forward, .backward_input = forward, .backward_weight = forward})
        ->makespan;
  };
  EXPECT_EQ(makespan("gpipe"), 57);
  EXPECT_EQ(makespan("1f1b"), 53);
}

TEST(SimulateTest, TransfersTakeTheirChannels) {
  const auto makespan = [](const char* name, ChannelModel channels) {
    return Simulated(Shape(name, 4, 8), {1, 1, 1}, 0.3, channels).makespan;
  };
  EXPECT_THAT(makespan("1f1b", ChannelModel::kOnePerStage), DoubleNear(38.4, kNear));
  EXPECT_THAT(makespan("1f1b", ChannelModel::kOnePerDirection), DoubleNear(37.8, kNear));
  EXPECT_THAT(makespan("1f1b", ChannelModel::kOnePerEdge), DoubleNear(37.8, kNear));
  EXPECT_THAT(makespan("interleaved:2", ChannelModel::kOnePerStage), DoubleNear(45.1, kNear));
  EXPECT_THAT(makespan("interleaved:2", ChannelModel::kOnePerDirection), DoubleNear(38.0, kNear));
  EXPECT_THAT(makespan("interleaved:2", ChannelModel::kOnePerEdge), DoubleNear(32.7, kNear));
  EXPECT_EQ(Simulated(Shape("interleaved:2", 4, 8)).makespan, 28.5);
}

// "a send and its receive have the same".
TEST(SimulateTest, SaysWhenEachItemRuns) {
  const PipelineShape shape = Shape("1f1b", 2, 1);
  const Simulation simulation = Simulated(shape, {4, 2, 1}, 0.5);
  std::vector<std::vector<double>> times;
  for (const auto& spans : simulation.spans) {
    times.emplace_back();
    for (const TimeSpan& span : spans)
      times.back().insert(times.back().end(), {span.begin, span.end});
  }
  // F0 >a0 <g0 B0, and <a0 F0 B0 >g0.
  EXPECT_THAT(times, ElementsAre(ElementsAre(0, 4, 4, 4.5, 11.5, 12, 12, 15),
                                 ElementsAre(4, 4.5, 4.5, 8.5, 8.5, 11.5, 11.5, 12)));
  EXPECT_EQ(simulation.makespan, 15);
  EXPECT_EQ(simulation.Bubble(), 8);
  EXPECT_EQ(simulation.LongestWait(), 8);
}

TEST(SimulateTest, CollectivesWaitForAllOfTheirStages) {
  PipelineSchedule schedule = *CreateSchedule(Shape("1f1b", 2, 1));
  ASSERT_OK(AddCollective({"norm", {0, 1}}, schedule));
  const auto simulation = Simulate(schedule, EqualTimes(schedule.shape, {1, 1, 1}));
  ASSERT_OK(simulation);
  EXPECT_EQ(simulation->spans[1].back().begin, 6);
  EXPECT_EQ(simulation->spans[0].back().begin, 6);
  EXPECT_EQ(simulation->makespan, 6);
  schedule.lists[1].pop_back();
  EXPECT_THAT(Simulate(schedule, EqualTimes(schedule.shape, {1, 1, 1})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pipeline: norm on stage 0 waits for what never comes"));
}

TEST(SimulateTest, PeaksAreWeighedByParts) {
  // Stage 0 keeps parts 0 and 3, stage 1 parts 1 and 2; all of them once.
  EXPECT_THAT(PeakActivationBytes(*CreateSchedule(Shape("zb-v", 2, 1)), {1, 10, 100, 1000}),
              ElementsAre(1001, 110));
  EXPECT_THAT(PeakActivationBytes(*CreateSchedule(Shape("1f1b", 2, 4)), {3, 5}), ElementsAre(6, 5));
}

TEST(SimulateTest, WhatCannotRunIsAnError) {
  const PipelineSchedule right = *CreateSchedule(Shape("1f1b", 2, 2));
  const PipelineTimes times = EqualTimes(right.shape, {1, 1, 1});
  const auto error = [](const PipelineSchedule& schedule, const PipelineTimes& of,
                        const char* text) {
    EXPECT_THAT(Simulate(schedule, of),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  PipelineSchedule wrong = right;
  // F0 >a0 ...: the receive is still there.
  wrong.lists[0].erase(wrong.lists[0].begin() + 1);
  error(wrong, times, "<a0 on stage 1 waits for what never comes");
  wrong = right;
  wrong.lists[1].erase(wrong.lists[1].begin());
  error(wrong, times, ">a0 on stage 0 waits for what never comes");
  wrong = right;
  wrong.lists[0].erase(wrong.lists[0].begin());
  error(wrong, times, ">a0 on stage 0 waits for what never comes");
  wrong = right;
  wrong.lists[0].push_back(wrong.lists[0][0]);
  error(wrong, times, "F0 on stage 0: it is there twice");
  // Without transfers as well.
  wrong = *ComputationsOf(right.shape);
  std::swap(wrong.lists[0].front(), wrong.lists[0].back());
  error(wrong, times, "B1 on stage 0 waits for what never comes");

  PipelineTimes other = times;
  other.forward.pop_back();
  error(right, other, "times of 1 parts for 2 parts");
  other = times;
  other.backward_weight[1] = -1;
  error(right, other, "a time of -1");
  other = times;
  other.transfer = -0.5;
  error(right, other, "transfers take a time of -0.5");
}

}  // namespace
}  // namespace brigade::parallel
