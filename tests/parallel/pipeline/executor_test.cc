#include "brigade/parallel/pipeline/executor.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/parallel/pipeline/check.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/parallel/pipeline/toy_pipeline.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {

namespace {

using ::brigade::testing::StatusIs;
using collectives::OnRanks;
using collectives::Rank;
using collectives::RanksOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr BoundaryShape kBoundary = {kToyWidth, precision::DType::kFloat32};
constexpr int kSteps = 2;

PipelineShape Shape(const std::string& schedule, int stages, int micro_batches) {
  return {ParseSchedule(schedule).value(), stages, micro_batches};
}
PipelineSchedule Lists(const std::string& schedule, int stages, int micro_batches) {
  return CreateSchedule(Shape(schedule, stages, micro_batches)).value();
}

struct Engine {
  const char* name;
  collectives::CreateEngineFn (*create)(const RanksOptions& options);
};
const Engine kEngines[] = {
    {"Threads", [](const RanksOptions& o) { return collectives::ThreadEngines(o); }},
    {"Gloo", [](const RanksOptions& o) { return collectives::testing::GlooEngines(o); }},
    {"Nccl", [](const RanksOptions& o) { return collectives::NcclEngines(o); }},
};

// What every replica of a pipeline has computed in kSteps steps, between passes that only evaluate.
std::vector<ToyResult> RunToy(const PipelineSchedule& schedule, const Engine& engine,
                              RanksOptions options = {}, int replicas = 1) {
  const PipelineShape& shape = schedule.shape;
  options.size = shape.stages * replicas;
  std::vector<ToyResult> results(
      static_cast<size_t>(replicas),
      ToyResult{std::vector<ToyArray>(static_cast<size_t>(shape.parts())), {}});
  std::mutex mutex;
  OnRanks(options, engine.create(options), [&](Rank& self) {
    auto grid = Grid::Create({.data = replicas, .pipeline = shape.stages}, *self.communicator);
    ASSERT_OK(grid);
    auto executor =
        PipelineExecutor::Create(schedule, kBoundary, **grid, *self.context, *self.stream);
    ASSERT_OK(executor);
    const int stage = (*grid)->coordinates().pipeline;
    ToyStage module(shape, stage, (*executor)->buffers());
    ASSERT_OK((*executor)->RunForward(module));
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_OK((*executor)->Synchronize());
      const int64_t sent = (*executor)->sent_bytes();
      ASSERT_OK((*executor)->Run(module));
      ASSERT_OK((*executor)->Synchronize());
      EXPECT_EQ((*executor)->sent_bytes() - sent, (*executor)->SentInStep());
      ASSERT_OK((*executor)->RunForward(module));
    }
    ASSERT_OK((*executor)->Synchronize());
    EXPECT_OK((*grid)->status());
    std::lock_guard lock(mutex);
    module.AddTo(results[static_cast<size_t>((*grid)->coordinates().data)]);
  });
  return results;
}

class ExecutorTest : public ::testing::TestWithParam<Engine> {};

TEST_P(ExecutorTest, EveryScheduleGivesTheBitsOfOneRank) {
  device::RaceChecker checker;
  for (const char* const name :
       {"gpipe", "1f1b", "interleaved:2", "interleaved:3", "zb-h1", "zb-v"}) {
    for (const int p : {1, 2, 3, 4}) {
      for (const int m : {1, 3, 4, 8}) {
        if (!Validate(Shape(name, p, m)).ok()) continue;
        // What differs between engines is seen in few of them.
        if (GetParam().name != std::string("Threads") && (p % 2 != 0 || m != 4)) continue;
        const PipelineSchedule schedule = Lists(name, p, m);
        const auto results = RunToy(schedule, GetParam(), {.race_checker = &checker});
        EXPECT_TRUE(results[0] == RunToyAlone(schedule.shape.parts(), m, kSteps))
            << name << " " << p << " " << m;
      }
    }
  }
  EXPECT_TRUE(checker.reports().empty());
}

TEST_P(ExecutorTest, ReplicasRunTheSameListsBesideEachOther) {
  const PipelineSchedule schedule = Lists("zb-h1", 2, 3);
  for (const ToyResult& result : RunToy(schedule, GetParam(), {}, 2)) {
    EXPECT_TRUE(result == RunToyAlone(2, 3, kSteps));
  }
}

TEST_P(ExecutorTest, ListsThatDifferAreAnErrorOnAllRanks) {
  const RanksOptions options = {.size = 2};
  OnRanks(options, GetParam().create(options), [&](Rank& self) {
    auto grid = Grid::Create({.pipeline = 2}, *self.communicator).value();
    // Both are right, each by itself.
    const PipelineSchedule schedule = Lists(self.rank == 0 ? "1f1b" : "gpipe", 2, 4);
    EXPECT_THAT(PipelineExecutor::Create(schedule, kBoundary, *grid, *self.context, *self.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 1 has other lists")));
    EXPECT_OK(self.communicator->status());
    EXPECT_THAT(PipelineExecutor::Create(Lists("1f1b", 2, 4), {.elements = 3 + self.rank}, *grid,
                                         *self.context, *self.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another shape")));
  });
}

TEST_P(ExecutorTest, AStageThatFailsEndsAllAndIsNamed) {
  const RanksOptions options = {.size = 4};
  OnRanks(options, GetParam().create(options), [&](Rank& self) {
    auto grid = Grid::Create({.data = 2, .pipeline = 2}, *self.communicator).value();
    auto executor =
        PipelineExecutor::Create(Lists("1f1b", 2, 4), kBoundary, *grid, *self.context, *self.stream)
            .value();
    const auto fails = [&](ItemKind kind, const StagePass& pass) {
      return self.rank == 2 && kind == ItemKind::kBackward && pass.micro_batch == 1
                 ? absl::DataLossError("the toy broke")
                 : absl::OkStatus();
    };
    ToyStage module(executor->schedule().shape, executor->stage(), executor->buffers(), fails);
    self.AwaitOthers();  // one that was still creating would get the error there
    absl::Status status;
    while (status.ok()) {
      status = executor->Run(module);
      if (status.ok()) status = self.communicator->Synchronize(*self.stream);
      if (status.ok()) status = grid->status();
      // Where no call tells.
      if (status.ok()) status = self.communicator->Barrier(*self.stream);
    }
    status = grid->Abort(status);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                 AllOf(HasSubstr("the toy broke"), HasSubstr("B1 on stage 1"),
                                       HasSubstr("data 0, pipeline 1"))))
        << self.rank;
    self.stream->Reset().IgnoreError();
    self.AwaitOthers();
  });
}

TEST(ExecutorOfOneEngineTest, ChangesNoBitWhenStreamsAreHeldUp) {
  device::RaceChecker checker;
  for (const char* const name : {"1f1b", "interleaved:2", "zb-h1", "zb-v"}) {
    const PipelineSchedule schedule = Lists(name, 3, 6);
    const ToyResult alone = RunToyAlone(schedule.shape.parts(), 6, kSteps);
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const RanksOptions options = {.random_delay = {.seed = seed, .max_delay_us = 200},
                                    .race_checker = &checker};
      ASSERT_TRUE(RunToy(schedule, kEngines[0], options)[0] == alone) << name << " " << seed;
    }
  }
  EXPECT_TRUE(checker.reports().empty());
}

TEST(ExecutorOfOneEngineTest, ASwapThatIsStillRightHasTheSameBits) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  int executed = 0;
  for (const char* const name : {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-v"}) {
    const PipelineSchedule schedule = Lists(name, 2, 4);
    const ToyResult alone = RunToyAlone(schedule.shape.parts(), 4, kSteps);
    for (int i = 0; i < 60; ++i) {
      PipelineSchedule swapped = schedule;
      // Several swaps, of which each was right.
      for (int swap = 0; swap < 4; ++swap) {
        PipelineSchedule next = swapped;
        StageList& list = next.lists[below(next.lists.size())];
        const size_t a = below(list.size() - 1);
        std::swap(list[a], list[std::min(a + 1 + below(3), list.size() - 1)]);
        if (Check(next).ok()) swapped = next;
      }
      if (swapped == schedule) continue;
      ++executed;
      ASSERT_TRUE(RunToy(swapped, kEngines[0])[0] == alone)
          << name << "\n"
          << ToString(swapped, swapped.lists[0]) << "\n"
          << ToString(swapped, swapped.lists[1]);
    }
  }
  EXPECT_GT(executed, 100);
}

TEST(ExecutorOfOneEngineTest, RefusesListsThatAreWrongBeforeAnythingRuns) {
  collectives::OnThreads({.size = 2}, [&](Rank& self) {
    auto grid = Grid::Create({.pipeline = 2}, *self.communicator).value();
    const auto create = [&](const PipelineSchedule& schedule, int64_t elements = kToyWidth) {
      return PipelineExecutor::Create(schedule, {.elements = elements}, *grid, *self.context,
                                      *self.stream)
          .status();
    };
    PipelineSchedule missing = Lists("1f1b", 2, 2);
    missing.lists[1].pop_back();
    EXPECT_THAT(create(missing), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr(">g1 on stage 1 is missing")));
    EXPECT_THAT(create(Lists("1f1b", 3, 4)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("a schedule of 3 stages for a grid of tensor 1 x context 1 x "
                                   "data 1 x pipeline 2")));
    EXPECT_THAT(create(Lists("1f1b", 2, 4), -1),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1 elements")));
    // The proof is each rank's, the error everybody's.
    PipelineSchedule mine = Lists("1f1b", 2, 2);
    if (self.rank == 1) std::swap(mine.lists[0][0], mine.lists[0].back());
    EXPECT_THAT(create(mine), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pipeline")));
    EXPECT_OK(self.communicator->status());
  });
}

TEST(ExecutorOfOneEngineTest, CallsCollectivesInTheirPlace) {
  PipelineSchedule schedule = Lists("1f1b", 2, 2);
  ASSERT_OK(AddCollective({"tied", {1}}, schedule));
  ASSERT_OK(AddCollective({"step", {0, 1}}, schedule));
  collectives::OnThreads({.size = 2}, [&](Rank& self) {
    auto grid = Grid::Create({.pipeline = 2}, *self.communicator).value();
    auto executor =
        PipelineExecutor::Create(schedule, kBoundary, *grid, *self.context, *self.stream).value();
    ToyStage module(schedule.shape, self.rank, executor->buffers());
    ASSERT_OK(executor->Run(module));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(module.collectives(), self.rank == 0 ? std::vector{1} : (std::vector{0, 1}));
  });
}

TEST(ExecutorOfOneEngineTest, AllocatesWhatItsBooksSay) {
  for (const char* const name : {"1f1b", "zb-v"}) {
    const PipelineSchedule schedule = Lists(name, 2, 4);
    const std::vector<StageBuffers> least = Check(schedule).value();
    collectives::OnThreads({.size = 2}, [&](Rank& self) {
      auto grid = Grid::Create({.pipeline = 2}, *self.communicator).value();
      const auto activations = [&] {
        return self.context->memory_stats().current_bytes(device::Purpose::kActivations);
      };
      const int64_t before = activations();
      auto executor =
          PipelineExecutor::Create(schedule, kBoundary, *grid, *self.context, *self.stream).value();
      const StageBuffers& buffers = executor->buffers();
      EXPECT_EQ(activations() - before, PipelineExecutor::Bytes(buffers, kBoundary));
      // One more of what is sent.
      const StageBuffers& its = least[static_cast<size_t>(self.rank)];
      EXPECT_EQ(buffers.inputs, its.inputs);
      EXPECT_EQ(buffers.outputs, its.outputs == 0 ? 0 : its.outputs + 1);
      EXPECT_EQ(buffers.deferred, its.deferred);
      const int64_t sends = std::count_if(executor->list().begin(), executor->list().end(),
                                          [](const PipelineItem& i) { return IsSend(i.kind); });
      EXPECT_EQ(executor->SentInStep(), sends * kToyWidth * 4);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, ExecutorTest, ::testing::ValuesIn(kEngines),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace brigade::parallel
