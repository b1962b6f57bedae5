// Times of steps from all ranks to rank 0; and a training that has them, which waits no more often
// than one that has none.

#include "brigade/train/observers/rank_lanes.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/examples/gpt/task.h"
#include "brigade/monitor/monitor.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/observers/metric_records.h"
#include "brigade/train/observers/step_watcher.h"
#include "brigade/train/rank_trainer.h"
#include "brigade/train/times/recorder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using ::brigade::testing::StatusIs;
using collectives::Rank;
using ::testing::SizeIs;

constexpr absl::Duration kOften = absl::Milliseconds(5);

train::StepTime StepOf(int64_t step, int rank) {
  train::StepTime time = {.step = step, .begin_ns = 1000 * step, .end_ns = 1000 * step + 900};
  time.split = {.gemm = 0.5, .other_compute = 0.25, .optimizer = 1, .idle = 2};
  time.lists = {{absl::StrCat("F", rank), time.begin_ns + 1, time.begin_ns + 2}};
  time.others = {{"update", time.begin_ns + 3, time.end_ns}};
  return time;
}

TEST(StepTimeTextTest, ComesBackAsItWas) {
  const train::StepTime step = StepOf(7, 3);
  ASSERT_OK_AND_ASSIGN(const train::StepTime read, train::StepTimeFromText(ToText(step)));
  EXPECT_EQ(ToText(read), ToText(step));
  EXPECT_EQ(read.step, 7);
  EXPECT_EQ(read.begin_ns, 7000);
  EXPECT_EQ(read.split.other_compute, 0.25);
  EXPECT_EQ(read.split.idle, 2);
  ASSERT_THAT(read.lists, SizeIs(1));
  EXPECT_EQ(read.lists[0].name, "F3");
  EXPECT_EQ(read.others[0].end_ns, 7900);
}

TEST(StepTimeTextTest, OtherTextIsNoStep) {
  const std::string whole = ToText(StepOf(1, 0));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(train::StepTimeFromText(whole.substr(0, length)),
                StatusIs(absl::StatusCode::kInvalidArgument, "what a rank has told is no step"));
  }
  for (const char* const text : {"[]", "{}", "3", "{\"step\": [1, 2, 3]}"}) {
    EXPECT_FALSE(train::StepTimeFromText(text).ok()) << text;
  }
  // A number of a step that none is.
  for (const char* const step : {"1e300", "0.5", "null"}) {
    const std::string text = absl::StrCat("{\"step\": [", step,
                                          ", 1, 2], \"split\": [0, 0, 0, 0, 0], "
                                          "\"lists\": [], \"others\": []}");
    EXPECT_FALSE(train::StepTimeFromText(text).ok()) << text;
  }
}

// Ranks have seen different steps: the last one that all have is shown, once.
TEST(RankLanesTest, BringTheLastStepThatAllHaveToRankZero) {
  collectives::OnThreads({.size = 3}, [&](Rank& self) {
    std::vector<train::StepTime> shown;
    int times = 0;
    std::latch has_one(1);
    train::RankLanes lanes(
        [&](std::vector<train::StepTime> steps) {
          shown = std::move(steps);
          if (++times == 1) has_one.count_down();
        },
        kOften);
    EXPECT_FALSE(lanes.active());
    // Nobody wants it yet.
    lanes.Keep({StepOf(50, self.rank)});
    ASSERT_OK(train::RankLanes::Start(&lanes, *self.communicator));
    EXPECT_TRUE(lanes.active());
    lanes.Keep({StepOf(4, self.rank), StepOf(5, self.rank)});
    if (self.rank > 0) lanes.Keep({StepOf(6, self.rank)});
    if (self.rank == 0) has_one.wait();
    self.AwaitOthers();
    lanes.Finish();
    EXPECT_FALSE(lanes.active());
    // What comes later is kept nowhere.
    lanes.Keep({StepOf(7, self.rank)});
    if (self.rank != 0) {
      EXPECT_EQ(times, 0);
      return;
    }
    // The heaps may have come one by one.
    EXPECT_LE(times, 2);
    ASSERT_THAT(shown, SizeIs(3));
    for (int rank = 0; rank < 3; ++rank) {
      const train::StepTime& its = shown[static_cast<size_t>(rank)];
      EXPECT_EQ(its.step, 5);
      // One machine, one clock.
      EXPECT_EQ(its.begin_ns, 5000);
      EXPECT_EQ(its.lists[0].name, absl::StrCat("F", rank));
    }
  });
}

TEST(RankLanesTest, WithoutLanesOnARankThereAreNone) {
  collectives::OnThreads({.size = 2}, [&](Rank& self) {
    train::RankLanes lanes([](std::vector<train::StepTime>) { ADD_FAILURE(); }, kOften);
    ASSERT_OK(train::RankLanes::Start(self.rank == 0 ? &lanes : nullptr, *self.communicator));
    EXPECT_FALSE(lanes.active());
    lanes.Keep({StepOf(1, 0)});
    lanes.Finish();
  });
}

// One training after another, whose steps begin anew; and one inside another, which has none.
TEST(RankLanesTest, BringThoseOfALaterTrainingToo) {
  collectives::OnThreads({.size = 2}, [&](Rank& self) {
    std::vector<int64_t> shown;
    std::unique_ptr<std::latch> has_one;
    train::RankLanes lanes(
        [&](std::vector<train::StepTime> steps) {
          shown.push_back(steps[0].step);
          has_one->count_down();
        },
        kOften);
    for (const int64_t step : {9, 3}) {
      has_one = std::make_unique<std::latch>(1);
      ASSERT_OK(train::RankLanes::Start(&lanes, *self.communicator));
      EXPECT_TRUE(lanes.active());
      lanes.Keep({StepOf(step, self.rank)});
      if (self.rank == 0) has_one->wait();
      ASSERT_OK(train::RankLanes::Start(&lanes, *self.communicator));
      EXPECT_TRUE(lanes.active());
      lanes.Finish();
      lanes.Abort();
      EXPECT_FALSE(lanes.active());
    }
    self.AwaitOthers();
    if (self.rank == 0) {
      EXPECT_EQ(shown, (std::vector<int64_t>{9, 3}));
    }
  });
}

// A training that goes back to an earlier state (Trainer::Load): what it does from there is shown,
// also by ranks that had not told all of before.
TEST(RankLanesTest, BringStepsBehindALoadToo) {
  collectives::OnThreads({.size = 2}, [&](Rank& self) {
    std::vector<int64_t> shown;
    std::latch has_last(1), has_again(1);
    train::RankLanes lanes(
        [&](std::vector<train::StepTime> steps) {
          shown.push_back(steps[0].step);
          if (shown.back() == 9) has_last.count_down();
          if (shown.back() == 3) has_again.count_down();
        },
        kOften);
    ASSERT_OK(train::RankLanes::Start(&lanes, *self.communicator));
    lanes.Keep({StepOf(8, self.rank), StepOf(9, self.rank)});
    if (self.rank == 0) has_last.wait();
    self.AwaitOthers();
    // Of step 10 the other rank has not told.
    if (self.rank == 0) lanes.Keep({StepOf(10, self.rank)});
    lanes.Keep({StepOf(3, self.rank)});
    if (self.rank == 0) has_again.wait();
    self.AwaitOthers();
    lanes.Finish();
    if (self.rank == 0) {
      EXPECT_EQ(shown.back(), 3);
      EXPECT_EQ(std::count(shown.begin(), shown.end(), 9), 1);
      EXPECT_EQ(std::count(shown.begin(), shown.end(), 3), 1);
    }
  });
}

// One rank has gone back to an earlier state and made step 50 again, the other still has its times
// of before, which were not told: the two are not shown beside each other.
TEST(RankLanesTest, StepsOfBeforeALoadAreNotShownBesideThoseBehindIt) {
  collectives::OnThreads({.size = 2}, [&](Rank& self) {
    std::vector<std::vector<train::StepTime>> shown;
    std::latch has_again(1);
    train::RankLanes lanes(
        [&](std::vector<train::StepTime> steps) {
          shown.push_back(std::move(steps));
          if (shown.size() == 1) has_again.count_down();
        },
        kOften);
    const auto again = [&] {
      train::StepTime step = StepOf(50, self.rank);
      step.lists[0].name = "again";
      return step;
    };
    ASSERT_OK(train::RankLanes::Start(&lanes, *self.communicator));
    if (self.rank == 0) {
      lanes.Keep({StepOf(52, self.rank), again()});
    } else {
      lanes.Keep({StepOf(50, self.rank), StepOf(51, self.rank)});
    }
    self.AwaitOthers();
    // For some exchanges.
    absl::SleepFor(20 * kOften);
    if (self.rank == 1) lanes.Keep({again()});
    if (self.rank == 0) has_again.wait();
    self.AwaitOthers();
    lanes.Finish();
    if (self.rank != 0) return;
    ASSERT_THAT(shown, SizeIs(1));
    for (const train::StepTime& step : shown[0]) {
      EXPECT_EQ(step.step, 50);
      EXPECT_EQ(step.lists[0].name, "again");
    }
  });
}

// A rank whose training fails ends the exchange, and not the communicator beside it.
TEST(RankLanesTest, ARankThatFailsHoldsUpNoOther) {
  collectives::OnThreads({.size = 3}, [&](Rank& self) {
    train::RankLanes lanes([](std::vector<train::StepTime>) {}, kOften);
    ASSERT_OK(train::RankLanes::Start(&lanes, *self.communicator));
    if (self.rank == 1) {
      lanes.Abort();
    } else {
      lanes.Finish();
    }
    EXPECT_FALSE(lanes.active());
    EXPECT_OK(self.communicator->Barrier(*self.stream));
    EXPECT_OK(self.communicator->Synchronize(*self.stream));
    self.AwaitOthers();
  });
}

// Counts what it is given.
class Counting final : public monitor::BackEnd {
 public:
  struct Seen {
    int64_t records = 0;
    std::vector<monitor::Timeline> timelines;
  };
  explicit Counting(Seen& seen) : seen_(seen) {}
  std::string name() const override { return "counting"; }
  absl::Status Start(const monitor::Position&) override { return absl::OkStatus(); }
  absl::Status Write(const monitor::Record&) override {
    ++seen_.records;
    return absl::OkStatus();
  }
  absl::Status Show(const monitor::Timeline& timeline) override {
    seen_.timelines.push_back(timeline);
    return absl::OkStatus();
  }

 private:
  Seen& seen_;
};

// What a training has cost of a rank's device.
struct Cost {
  int64_t waits = 0;
  int64_t peak = 0, host_peak = 0;

  friend bool operator==(const Cost&, const Cost&) = default;
};

constexpr int kStages = 2;

std::vector<Cost> CostOf(bool watched, Counting::Seen& seen) {
  const GridCase grid = {.pipeline = kStages, .micro_batches = 2};
  Job job = JobOf(grid, 1, 1, "fp32", kAdamW);
  job.steps = 60;
  std::vector<std::unique_ptr<monitor::BackEnd>> back_ends;
  back_ends.push_back(std::make_unique<Counting>(seen));
  monitor::Monitor monitor(std::move(back_ends), {});
  train::StepWatcher watcher(
      monitor, {.ranks = 1, .samples_of_step = 2, .has_values = true, .has_timelines = true});
  std::vector<std::unique_ptr<train::RankLanes>> lanes;
  for (int rank = 0; rank < kStages; ++rank) {
    lanes.push_back(std::make_unique<train::RankLanes>(
        [&](std::vector<train::StepTime> steps) { watcher.Show(std::move(steps)); }, kOften));
  }
  train::Recorder::StepSink sink;
  if (watched) {
    // As in processes: each rank keeps its own.
    sink = [&](absl::string_view context, std::vector<train::StepTime> steps) {
      size_t rank = 0;
      absl::ConsumePrefix(&context, "rank ");
      ASSERT_TRUE(absl::SimpleAtoi(context, &rank));
      lanes[rank]->Keep(steps);
      if (rank == 0) watcher.Watch("rank 0", std::move(steps), /*shows=*/false);
    };
  }
  train::Recorder recorder(nullptr, std::move(sink));
  train::MonitorObserver observer(monitor, 2);
  std::vector<Cost> costs(kStages);
  const Task task(job);
  collectives::OnThreads({.size = kStages, .tracer = &recorder.tracer()}, [&](Rank& self) {
    const auto grid_of_ranks = parallel::Grid::Create(job.config.grid, *self.communicator).value();
    auto trainer = train::RankTrainer::Create(job, task, *grid_of_ranks, *self.context,
                                              *self.stream, recorder);
    ASSERT_OK(trainer);
    train::RankLanes& own = *lanes[static_cast<size_t>(self.rank)];
    ASSERT_OK(train::RankLanes::Start(watched ? &own : nullptr, *self.communicator));
    const int64_t before = self.context->host_waits();
    ASSERT_OK((*trainer)->Train(watched && self.rank == 0 ? &observer : nullptr,
                                std::atomic<bool>(false)));
    if (watched) own.Finish();
    costs[static_cast<size_t>(self.rank)] = {self.context->host_waits() - before,
                                             self.context->memory_stats().peak_bytes(),
                                             self.context->host_memory_stats().peak_bytes()};
    self.AwaitOthers();
  });
  EXPECT_TRUE(monitor.Drain(absl::Minutes(5)));
  return costs;
}

TEST(RankLanesTest, ATrainingThatIsWatchedWaitsAndAllocatesLikeOneThatIsNot) {
  Counting::Seen nothing, seen;
  EXPECT_EQ(CostOf(false, nothing), CostOf(true, seen));
  EXPECT_EQ(nothing.records, 0);
  EXPECT_EQ(nothing.timelines.size(), 0u);
  // Records of steps, of their parts, and of evaluations.
  EXPECT_GT(seen.records, 2 * 60);
  ASSERT_FALSE(seen.timelines.empty());
  for (const monitor::Timeline& timeline : seen.timelines) {
    ASSERT_THAT(timeline.lanes, SizeIs(kStages));
    EXPECT_EQ(timeline.lanes[1].name, "rank 1");
    // Both passes of both micro-batches.
    EXPECT_THAT(timeline.lanes[0].passes, SizeIs(4));
    EXPECT_THAT(timeline.lanes[1].passes, SizeIs(4));
  }
}

}  // namespace
}  // namespace brigade::gpt
