// Trainings of which a step is profiled, in every stage and on grids.

#include "brigade/train/step_profiler.h"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/device/files.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/profile/profile_text.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/times/pass_times.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using profile::Pass;
using ::testing::HasSubstr;

class Profiles : public train::Observer {
 public:
  absl::Status OnStep(const train::StepMetrics& metrics) override {
    losses.push_back(metrics.loss);
    return absl::OkStatus();
  }
  absl::Status OnEvaluation(const train::Evaluation&) override { return absl::OkStatus(); }
  absl::Status OnProfile(const train::ProfileEvent& profile) override {
    EXPECT_FALSE(event.has_value()) << "a second profile";
    event = profile;
    steps_before = losses.size();
    return absl::OkStatus();
  }

  std::vector<double> losses;
  std::optional<train::ProfileEvent> event;
  size_t steps_before = 0;
};

// Holds up the training when it is told of a save.
class SlowSaves final : public Profiles {
 public:
  static constexpr absl::Duration kHeldUp = absl::Seconds(2);

  absl::Status OnSave(const train::SaveEvent& save) override {
    // Before the profiled step, the third, and behind it.
    if (save.step == 2 || save.step == 3) {
      ++held_up;
      absl::SleepFor(kHeldUp);
    }
    return absl::OkStatus();
  }

  int held_up = 0;
};

// Ceilings that need no measurement.
std::string CeilingsFile() {
  const std::string path = absl::StrCat(::testing::TempDir(), "/ceilings.json");
  std::ofstream(path) << R"({"matmul_tflops": 0.05, "memory_gigabytes_per_s": 10,
                             "network_gigabytes_per_s": 1})";
  return path;
}

absl::StatusOr<train::Outcome> TrainWith(const Job& job, int ranks, Profiles& profiles) {
  const std::atomic<bool> stop = false;
  return TrainOnThreads(job, ranks, {&profiles, nullptr, &stop});
}

Job Profiled(Job job, int64_t step = 3) {
  job.config.profiler = {.enabled = true, .profile_step = step, .ceilings_file = CeilingsFile()};
  job.steps = 8;
  return job;
}

// All units were seen, operations are those of the model, and nothing of the training has changed.
void ExpectAProfile(Job job, int ranks) {
  job.steps = 8;
  Profiles without, profiles;
  ASSERT_OK(TrainWith(job, ranks, without));
  ASSERT_OK_AND_ASSIGN(const train::Outcome outcome, TrainWith(Profiled(job), ranks, profiles));
  EXPECT_EQ(profiles.losses, without.losses);
  ASSERT_TRUE(profiles.event.has_value());
  const profile::StepProfile& profile = profiles.event->profile;
  EXPECT_EQ(profile.training.step, 3);
  EXPECT_EQ(profile.training.ranks, ranks);
  EXPECT_EQ(profile.dropped, 0);
  EXPECT_GT(profile.seconds, 0);
  EXPECT_GT(profile.mfu(false), 0);
  EXPECT_GE(profile.hfu(false), profile.mfu(false));
  ASSERT_EQ(profile.units.size(), static_cast<size_t>(job.model.layers) + 3);
  double flops = 0, of_kernels = 0, wall = 0, collectives = 0;
  for (const profile::Module& unit : profile.units) {
    wall += unit.wall_seconds();
    if (unit.name == "between passes") continue;
    EXPECT_GT(unit.seconds[0], 0) << unit.name;
    EXPECT_GT(unit.seconds[1], 0) << unit.name;
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      const profile::Flops& of = unit.flops[static_cast<size_t>(pass)];
      flops += of.products + of.attention;
    }
  }
  EXPECT_NEAR(flops / profile.model_flops(true), 1, 1e-9);
  // Each rank's step, at most the slowest one's.
  EXPECT_GT(wall, 0);
  EXPECT_LE(wall, ranks * profile.seconds * (1 + 1e-6));
  for (const profile::Kernel& kernel : profile.kernels) {
    EXPECT_FALSE(train::IsStepMark(kernel.row.name) || train::IsStepEnd(kernel.row.name));
    of_kernels += kernel.flops;
    if (kernel.row.kind == profile::Kind::kProduct) {
      EXPECT_GT(kernel.row.bytes, 0) << kernel.row.name;
    }
    if (kernel.row.kind == profile::Kind::kCollective) collectives += kernel.row.seconds;
  }
  // What the kernels have made is what formulas say, what was made again included.
  EXPECT_NEAR(of_kernels / profile.hardware_flops(true), 1, 1e-9);
  if (ranks > 1) {
    EXPECT_GT(collectives, 0);
  }
  double sent = 0;
  for (const profile::Sent& each : profile.sent) sent += each.bytes;
  if (ranks > 1) {
    EXPECT_GT(sent, 0);
  }
  // What calls have sent by the formulas of their algorithms is what the communicators have
  // counted, of each step alike; but for copies, whose steps are not.
  double of_calls = 0;
  for (const profile::CollectiveCalls& calls : profile.calls) {
    of_calls += calls.sent_bytes;
    EXPECT_GT(calls.seconds, 0) << calls.name;
    EXPECT_LE(calls.waiting_seconds, calls.seconds) << calls.name;
  }
  int64_t of_books = 0;
  for (const train::RankSummary& rank : outcome.ranks) {
    for (const int64_t of_group : rank.sent) of_books += of_group;
  }
  if (job.config.replicas == 0) {
    EXPECT_EQ(of_calls * 8, static_cast<double>(of_books));
  }
  // The table beside it has all of it but the sums of losses, and none of its arrays twice.
  EXPECT_NEAR(sent, of_calls, 64.0 * ranks);
  EXPECT_GE(outcome.ranks[0].hardware_over_model, 1);
  for (const train::RankSummary& rank : outcome.ranks) {
    EXPECT_EQ(rank.peak_flops_per_second, 0.05e12);
    for (int p = 0; p < device::kPurposes; ++p) EXPECT_EQ(rank.memory[p], rank.memory_model[p]);
  }
  EXPECT_THAT(profiles.event->text, HasSubstr("Profile of step 3"));
}

TEST(StepProfilerTest, EveryStageHasAProfile) {
  for (int stage = 0; stage < zero::kStages; ++stage) {
    SCOPED_TRACE(stage);
    ExpectAProfile(CreateJob(Config(4, stage, "fp32"), 2), 2);
  }
}

TEST(StepProfilerTest, GridsHaveAProfile) {
  for (const GridCase& grid :
       {GridCase{}, GridCase{.tensor = 2, .data = 2, .sequence_parallel = true},
        GridCase{.context = 2}, GridCase{.context = 2, .ring = true},
        GridCase{.data = 2, .pipeline = 2, .micro_batches = 2},
        GridCase{.pipeline = 2, .schedule = "zb-h1", .micro_batches = 4}}) {
    SCOPED_TRACE(ToString(grid));
    ExpectAProfile(JobOf(grid, grid.tensor, 1, "fp32", kAdamW), grid.ranks());
  }
}

// Of the step whose round sums between them.
TEST(StepProfilerTest, CopiesHaveAProfile) {
  std::string config = Config(8, 2, "fp32");
  config.pop_back();
  const Job job =
      CreateJob(absl::StrCat(config, R"(, "brigade": {"replicas": 2, "replica_period": 3}})"), 4);
  ExpectAProfile(job, 4);
  Profiles profiles;
  ASSERT_OK(TrainWith(Profiled(job), 4, profiles));
  ASSERT_TRUE(profiles.event.has_value());
  double between = 0;
  for (const profile::Sent& sent : profiles.event->profile.sent) {
    if (sent.to == "sums between copies") between = sent.bytes;
  }
  EXPECT_GT(between, 0);
}

TEST(StepProfilerTest, RecomputationAndOffloadHaveAProfile) {
  Job job = CreateJob(Config(4, 3, "bf16"), 2);
  job.config.recompute.kind = recompute::Policy::Kind::kBlock;
  job.config.recompute.stash = recompute::StashTier::kHost;
  job.config.zero.offload.optimizer_state = device::Tier::kHost;
  ExpectAProfile(job, 2);
  Profiles profiles;
  ASSERT_OK(TrainWith(Profiled(job), 2, profiles));
  ASSERT_TRUE(profiles.event.has_value());
  const profile::StepProfile& profile = profiles.event->profile;
  EXPECT_GT(profile.pass_seconds(Pass::kRecompute), 0);
  EXPECT_GT(profile.hfu(false), profile.mfu(false));
}

TEST(StepProfilerTest, ItIsTheStepThatWasAskedFor) {
  const Job job = CreateJob(Config(4, 2, "fp32"), 2);
  for (const int64_t step : {1, 5, 8}) {
    Profiles profiles;
    ASSERT_OK(TrainWith(Profiled(job, step), 2, profiles));
    ASSERT_TRUE(profiles.event.has_value()) << step;
    EXPECT_EQ(profiles.event->profile.training.step, step);
    // It was told when it had ended.
    EXPECT_GE(profiles.steps_before, static_cast<size_t>(step));
  }
}

TEST(StepProfilerTest, AStepBeforeAnEvaluationIsToldBeforeIt) {
  Job job = Profiled(CreateJob(Config(4, 2, "fp32"), 2), /*step=*/4);
  job.evaluate_every = 4;
  Profiles profiles;
  ASSERT_OK(TrainWith(job, 2, profiles));
  ASSERT_TRUE(profiles.event.has_value());
  EXPECT_EQ(profiles.steps_before, 4u);
}

// A save that comes before the step or behind it, and holds the training up, is not in it.
TEST(StepProfilerTest, ASaveBesideTheStepIsNotInIt) {
  Job job = Profiled(CreateJob(Config(4, 2, "fp32"), 1), /*step=*/3);
  const std::string folder = absl::StrCat(::testing::TempDir(), "/saved");
  std::filesystem::remove_all(folder);
  job.checkpoints.save = folder;
  job.checkpoints.save_every = 1;
  SlowSaves profiles;
  ASSERT_OK(TrainWith(job, 1, profiles));
  ASSERT_TRUE(profiles.event.has_value());
  EXPECT_EQ(profiles.held_up, 2);
  EXPECT_LT(profiles.event->profile.seconds, absl::ToDoubleSeconds(SlowSaves::kHeldUp));
}

TEST(StepProfilerTest, AStepThatIsNotMadeHasNoProfile) {
  const Job job = Profiled(CreateJob(Config(4, 2, "fp32"), 2), /*step=*/9);
  Profiles profiles;
  ASSERT_OK_AND_ASSIGN(const train::Outcome outcome, TrainWith(job, 2, profiles));
  EXPECT_FALSE(profiles.event.has_value());
  EXPECT_EQ(outcome.ranks[0].hardware_over_model, 0);
}

TEST(StepProfilerTest, AFileHasTheTables) {
  Job job = Profiled(CreateJob(Config(4, 2, "fp32"), 2));
  job.config.profiler.output_file = absl::StrCat(::testing::TempDir(), "/profile.txt");
  Profiles profiles;
  ASSERT_OK(TrainWith(job, 2, profiles));
  ASSERT_TRUE(profiles.event.has_value());
  EXPECT_EQ(profiles.event->text, "");
  ASSERT_OK_AND_ASSIGN(const std::string text, device::ReadFile(job.config.profiler.output_file));
  EXPECT_EQ(text, profile::ProfileText(profiles.event->profile, job.config.profiler));
}

TEST(StepProfilerTest, AFileThatCannotBeWrittenIsAnErrorBeforeTheFirstStep) {
  Job job = Profiled(CreateJob(Config(4, 2, "fp32"), 2));
  job.config.profiler.output_file = absl::StrCat(::testing::TempDir(), "/missing/profile.txt");
  Profiles profiles;
  EXPECT_THAT(TrainWith(job, 2, profiles).status().ToString(), HasSubstr("missing/profile.txt"));
  EXPECT_TRUE(profiles.losses.empty());
}

TEST(StepProfilerTest, AGivenPeakCountsInsteadOfTheMeasuredOne) {
  Job job = Profiled(CreateJob(Config(4, 2, "fp32"), 2));
  job.config.profiler.peak_flops_per_second = 1e15;
  Profiles profiles;
  ASSERT_OK(TrainWith(job, 2, profiles));
  ASSERT_TRUE(profiles.event.has_value());
  EXPECT_EQ(profiles.event->profile.ceilings.flops_per_second, 1e15);
}

}  // namespace
}  // namespace brigade::gpt
