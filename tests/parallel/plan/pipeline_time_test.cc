#include "brigade/parallel/plan/pipeline_time.h"

#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/parallel/pipeline/simulate.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

constexpr StageTimes kPasses[] = {{1, 1, 1}, {1, 1.25, 0.75}, {1, 2.5, 0.75}};

double Work(const PipelineShape& shape, const StageTimes& times) {
  return shape.micro_batches * (times.forward + times.backward_input + times.backward_weight);
}

double Simulated(const PipelineShape& shape, const StageTimes& times, double hop) {
  const auto schedule = CreateSchedule(shape);
  EXPECT_OK(schedule);
  PipelineTimes all = EqualTimes(shape, times);
  all.transfer = hop;
  const auto simulation = Simulate(*schedule, all);
  EXPECT_OK(simulation);
  return simulation->makespan - Work(shape, times);
}

ScheduleChoice Schedule(const char* name) { return *ParseSchedule(name); }

TEST(BubbleSecondsTest, IsThePublishedFraction) {
  // (p-1)/m of the work, with v chunks /v.
  EXPECT_DOUBLE_EQ(BubbleSeconds({{}, 8, 32}, {1, 1, 1}) / Work({{}, 8, 32}, {1, 1, 1}), 7.0 / 32);
  const PipelineShape interleaved = {{ScheduleKind::kInterleaved, 4}, 8, 32};
  EXPECT_DOUBLE_EQ(BubbleSeconds(interleaved, {1, 1, 1}) / Work(interleaved, {1, 1, 1}),
                   7.0 / 4 / 32);
}

TEST(BubbleSecondsTest, IsWhatTheSimulationHas) {
  for (const char* name : {"gpipe", "1f1b", "interleaved:2", "interleaved:3", "zb-h1", "zb-v"}) {
    for (const int stages : {2, 3, 4, 8}) {
      for (const int times : {1, 2, 4}) {
        for (const StageTimes& passes : kPasses) {
          const PipelineShape shape = {Schedule(name), stages, stages * times};
          EXPECT_NEAR(BubbleSeconds(shape, passes), Simulated(shape, passes, 0), 1e-9)
              << name << " " << stages << " stages, " << times << ", " << passes.backward_input;
        }
      }
    }
  }
}

TEST(BubbleSecondsTest, IsAnUpperBoundWhereZeroBubbleVIsNotFull) {
  for (const int micro_batches : {5, 6}) {
    const PipelineShape shape = {Schedule("zb-v"), 4, micro_batches};
    for (const StageTimes& passes : kPasses) {
      EXPECT_GE(BubbleSeconds(shape, passes), Simulated(shape, passes, 0) - 1e-9);
      EXPECT_LE(BubbleSeconds(shape, passes), 2 * Simulated(shape, passes, 0));
    }
  }
}

// Of the whole step within 1 %, for transfers of a tenth of a pass.
TEST(TransferSecondsTest, IsWhatTheSimulationHas) {
  constexpr double kHop = 0.1;
  for (const char* name : {"gpipe", "1f1b", "interleaved:2", "interleaved:3", "zb-h1", "zb-v"}) {
    for (const int stages : {2, 4, 8}) {
      for (const int times : {2, 4}) {
        const PipelineShape shape = {Schedule(name), stages, stages * times};
        for (const StageTimes& passes : kPasses) {
          const double work = Work(shape, passes);
          const double predicted =
              work + BubbleSeconds(shape, passes) + TransferSeconds(shape, kHop);
          EXPECT_NEAR(predicted / (work + Simulated(shape, passes, kHop)), 1, 0.025)
              << name << " " << stages << " stages, " << times << ", " << passes.backward_input;
        }
      }
    }
  }
  EXPECT_EQ(TransferSeconds({{}, 1, 8}, kHop), 0);
}

}  // namespace
}  // namespace brigade::parallel
