// What a training shows while it runs: what the config names, in every way to start one.

#include "brigade/train/watch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/data/samples.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/mlp.h"
#include "brigade/tests/testing/full_disk.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/on_ranks.h"
#include "brigade/train/model_task.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/trainer.h"
#include "brigade/train/training.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

namespace fs = std::filesystem;
using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int kRanks = 2;
constexpr int64_t kSteps = 5;

// A number, and its double as target.
class Doubles final : public data::Samples {
 public:
  int64_t size() const override { return 4 * kSteps; }
  int64_t input_bytes() const override { return sizeof(float); }
  int64_t target_bytes() const override { return sizeof(float); }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    const float x = static_cast<float>(sample) / 8, y = 2 * x;
    std::memcpy(input, &x, sizeof(x));
    std::memcpy(target, &y, sizeof(y));
    return absl::OkStatus();
  }
};

TrainingData Data() { return {.training = std::make_shared<Doubles>(), .epochs = 1}; }
ModelFactory Model() {
  return [](const ModelPlace& place) {
    return examples::Mlp::Create(place, {1, 1}, examples::Loss::kSquaredError);
  };
}

// A folder of the test's own.
std::string Folder(const std::string& name) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "watch_", name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

Job Monitored(const std::string& folder) {
  Job job;
  job.config = ParseConfig(absl::StrCat(R"({"train_batch_size": 4, "optimizer": {"type": "SGD"},
        "wall_clock_breakdown": true,
        "tensorboard": {"enabled": true, "output_path": ")",
                                        folder, R"(", "job_name": "board"},
        "csv_monitor": {"enabled": true, "output_path": ")",
                                        folder, R"(", "job_name": "csv"}})"),
                           kRanks)
                   .value();
  job.steps = kSteps;
  return job;
}

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// One event file, of rank 0; and files of values with a line a step, also of those that are made
// of the steps' times.
void ExpectMonitored(const std::string& folder) {
  EXPECT_EQ(std::distance(fs::directory_iterator(folder + "/board"), {}), 1);
  EXPECT_GT(fs::file_size(fs::directory_iterator(folder + "/board")->path()), 0u);
  for (const char* tag : {"train_loss", "lr", "elapsed_time_ms_forward"}) {
    SCOPED_TRACE(tag);
    EXPECT_THAT(Lines(absl::StrCat(folder, "/csv/Train_Samples_", tag, ".csv")),
                SizeIs(1 + kSteps));
  }
}

// Each rank's trainer; statuses by rank.
std::array<absl::Status, kRanks> StatusesOnRanks(
    absl::FunctionRef<absl::Status(const collectives::LaunchInfo&, const TrainerOptions&)> call) {
  std::array<absl::Status, kRanks> statuses;
  OnRanks(kRanks, [&](const collectives::LaunchInfo& launch_info, const TrainerOptions& options) {
    statuses[static_cast<size_t>(launch_info.rank)] = call(launch_info, options);
  });
  return statuses;
}

TEST(WatchTest, ATrainerMakesTheMonitorsOfItsConfig) {
  const std::string folder = Folder("trainer");
  const Job job = Monitored(folder);
  History history;
  for (const absl::Status& status :
       StatusesOnRanks([&](const collectives::LaunchInfo&launch_info, TrainerOptions options) {
         options.observer = &history;
         // All is written when it is reported.
         options.report = [&](const Outcome&) { ExpectMonitored(folder); };
         const auto trainer = Trainer::Create(job, Model(), Data(), launch_info, options);
         return trainer.ok() ? (*trainer)->Fit().status() : trainer.status();
       })) {
    EXPECT_OK(status);
  }
  EXPECT_THAT(history.steps(), SizeIs(kSteps));
  ExpectMonitored(folder);
}

// From the state of step 2 on its files are made again.
TEST(WatchTest, BehindALoadNoStepIsThereTwice) {
  const std::string folder = Folder("load");
  Job job = Monitored(folder);
  job.checkpoints.save = folder + "/states";
  const std::string losses = folder + "/csv/Train_Samples_train_loss.csv";
  for (const absl::Status& status :
       StatusesOnRanks([&](const collectives::LaunchInfo&launch_info,
                           const TrainerOptions&options) -> absl::Status {
         BRIGADE_ASSIGN_OR_RETURN(const auto trainer,
                                  Trainer::Create(job, Model(), Data(), launch_info, options));
         const auto step_up_to = [&](int64_t last) -> absl::Status {
           while (trainer->step() < last) {
             BRIGADE_RETURN_IF_ERROR(trainer->Batch().status());
             BRIGADE_RETURN_IF_ERROR(trainer->Backward());
             BRIGADE_RETURN_IF_ERROR(trainer->Step());
           }
           return absl::OkStatus();
         };
         BRIGADE_RETURN_IF_ERROR(step_up_to(2));
         BRIGADE_RETURN_IF_ERROR(trainer->Save());
         BRIGADE_RETURN_IF_ERROR(step_up_to(4));
         BRIGADE_RETURN_IF_ERROR(trainer->Load(folder + "/states/step-00000002"));
         BRIGADE_RETURN_IF_ERROR(step_up_to(kSteps));
         return trainer->Finish().status();
       })) {
    EXPECT_OK(status);
  }
  std::vector<std::string> samples;
  for (const std::string& line : Lines(losses)) samples.push_back(line.substr(0, line.find(',')));
  EXPECT_THAT(samples, ElementsAre("step", "4", "8", "12", "16", "20"));
}

TEST(WatchTest, SoDoThreads) {
  const std::string folder = Folder("threads");
  const Job job = Monitored(folder);
  const auto task = ModelTask::Create(Model(), Data()).value();
  int reports = 0;
  const auto report = [&](const Outcome&) {
    ++reports;
    // All is written when it is reported.
    ExpectMonitored(folder);
  };
  ASSERT_OK(TrainOnThreads(job, *task, kRanks, {.report = report}));
  EXPECT_EQ(reports, 1);
  ExpectMonitored(folder);
}

// Of threads, whose monitors end with the training: what is missing is told before the report.
TEST(WatchTest, CountsOfThreadsComeBeforeTheReport) {
  const std::string folder = Folder("missing");
  const Job job = Monitored(folder);
  // No file can be in its place.
  fs::create_directories(folder + "/csv/Train_Samples_lr.csv");
  const auto task = ModelTask::Create(Model(), Data()).value();
  std::string told;
  ::testing::internal::CaptureStderr();
  const auto report = [&](const Outcome&) { told = ::testing::internal::GetCapturedStderr(); };
  ASSERT_OK(TrainOnThreads(job, *task, kRanks, {.report = report}));
  EXPECT_THAT(told, HasSubstr(" records are missing: "));
  EXPECT_THAT(told, HasSubstr("Train_Samples_lr.csv"));
}

TEST(WatchTest, TellsOnceWhatIsWithoutEffect) {
  Job job = Monitored(Folder("without_effect"));
  job.config.without_effect = {"a.key is 1: because"};
  constexpr char kTold[] = "Without effect: a.key is 1: because\n";
  ::testing::internal::CaptureStderr();
  for (const absl::Status& status : StatusesOnRanks(
           [&](const collectives::LaunchInfo&launch_info, const TrainerOptions&options) {
             const auto trainer = Trainer::Create(job, Model(), Data(), launch_info, options);
             return trainer.ok() ? (*trainer)->Fit().status() : trainer.status();
           })) {
    EXPECT_OK(status);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), kTold);

  ::testing::internal::CaptureStderr();
  const auto task = ModelTask::Create(Model(), Data()).value();
  EXPECT_OK(TrainOnThreads(job, *task, kRanks, {}));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), kTold);
}

// Rank 1 makes no monitors: it must not wait for rank 0.
TEST(WatchTest, AMonitorThatCannotBeMadeEndsAllRanks) {
  const std::string folder = Folder("refused");
  std::ofstream(folder + "/board") << "a file";
  const Job job = Monitored(folder);
  for (const absl::Status& status : StatusesOnRanks(
           [&](const collectives::LaunchInfo&launch_info, const TrainerOptions&options) {
             return Trainer::Create(job, Model(), Data(), launch_info, options).status();
           })) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder + "/board"));
  }
  const auto task = ModelTask::Create(Model(), Data()).value();
  EXPECT_THAT(std::string(TrainOnThreads(job, *task, kRanks, {}).status().message()),
              HasSubstr(folder + "/board"));
}

TEST(WatchTest, TellsLossesInTheirUnits) {
  const std::string progress = Folder("units") + "/progress";
  std::FILE* const out = std::fopen(progress.c_str(), "w");
  ASSERT_NE(out, nullptr);
  Job job;
  job.config =
      ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "SGD"}})", kRanks).value();
  auto watch =
      Watch::Create(job, {.threads = kRanks, .progress = out, .unit = "frame", .loss = "penalty"});
  ASSERT_OK(watch);
  ASSERT_OK((*watch)->observer().OnEvaluation({.step = 3, .held_out_loss = 1.5}));
  (*watch)->Close(Watch::kPatience);
  std::fclose(out);
  EXPECT_THAT(Lines(progress), ElementsAre("held out after 3 steps: 1.5000 penalty per frame"));
}

TEST(WatchTest, ShowsProgressMetricsAndATrace) {
  const std::string folder = Folder("options");
  Job job = Monitored(folder);
  job.config.steps_per_print = 1;
  const std::string progress = folder + "/progress";
  std::FILE* const out = std::fopen(progress.c_str(), "w");
  ASSERT_NE(out, nullptr);
  int64_t times = 0;
  const auto on_steps = [&](absl::string_view context, std::vector<StepTime> steps) {
    if (context == "rank 1") times += std::ssize(steps);
  };
  auto watch = Watch::Create(job, {.threads = kRanks,
                                   .progress = out,
                                   .units_of_step = 4,
                                   .metrics = folder + "/metrics",
                                   .trace = folder + "/trace.json",
                                   .on_steps = on_steps});
  ASSERT_OK(watch);
  const auto task = ModelTask::Create(Model(), Data()).value();
  ASSERT_OK(TrainOnThreads(job, *task, kRanks, {.watch = watch->get()}));
  (*watch)->Close(Watch::kPatience);
  ASSERT_OK((*watch)->recorder().Finish());
  std::fclose(out);
  const std::vector<std::string> lines = Lines(progress);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) { return line.starts_with("step "); }),
            kSteps);
  const std::vector<std::string> metrics = Lines(folder + "/metrics");
  EXPECT_EQ(std::count_if(
                metrics.begin(), metrics.end(),
                [](const std::string& line) { return line.find("\"loss\"") != std::string::npos; }),
            kSteps);
  const std::vector<std::string> trace = Lines(folder + "/trace.json");
  ASSERT_FALSE(trace.empty());
  EXPECT_THAT(trace.front(), StartsWith("["));
  EXPECT_THAT(trace.back(), EndsWith("]"));
  EXPECT_EQ(times, kSteps);
  ExpectMonitored(folder);
}

// Of rank 0: ends a training some steps after a trace has failed, wherever that is.
class StopBehindFailure final : public Observer {
 public:
  absl::Status OnStep(const StepMetrics&) override {
    const Recorder* const of = recorder;
    // The other rank is at most a few steps away, and tells in its next one.
    if (of != nullptr && !of->status().ok() && ++steps_behind_ == 16) stop = true;
    return absl::OkStatus();
  }
  absl::Status OnEvaluation(const Evaluation&) override { return absl::OkStatus(); }

  std::atomic<const Recorder*> recorder = nullptr;
  std::atomic<bool> stop = false;

 private:
  int steps_behind_ = 0;
};

// Of any process, not of rank 0's alone.
TEST(WatchTest, ATraceThatCannotBeWrittenIsToldAndEndsNoTraining) {
  const std::string folder = Folder("full");
  Job job;
  job.config =
      ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "SGD"}})", kRanks).value();
  // More than are made before the first operations are written.
  job.steps = 500'000;
  const TrainingData data = {.training = std::make_shared<Doubles>()};
  for (const int traced : {0, 1}) {
    SCOPED_TRACE(traced);
    const ::brigade::testing::FullDisk full_disk(1 << 14);
    const auto cannot_write = AllOf(HasSubstr("cannot write trace"), HasSubstr(folder));
    StopBehindFailure observer;
    std::array<std::unique_ptr<Watch>, kRanks> watches;
    for (int rank = 0; rank < kRanks; ++rank) {
      WatchOptions of_rank = {.rank = rank};
      if (rank == traced) of_rank.trace = folder + "/trace.json";
      watches[static_cast<size_t>(rank)] = Watch::Create(job, of_rank).value();
    }
    observer.recorder = &watches[static_cast<size_t>(traced)]->recorder();
    ::testing::internal::CaptureStderr();
    for (const absl::Status& status :
         StatusesOnRanks([&](const collectives::LaunchInfo&launch_info, TrainerOptions options) {
           options.watch = watches[static_cast<size_t>(launch_info.rank)].get();
           options.observer = &observer;
           options.stop = &observer.stop;
           const auto trainer = Trainer::Create(job, Model(), data, launch_info, options);
           return trainer.ok() ? (*trainer)->Fit().status() : trainer.status();
         })) {
      EXPECT_OK(status);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      Watch& watch = *watches[static_cast<size_t>(rank)];
      const absl::Status written = watch.recorder().Finish();
      EXPECT_EQ(written.ok(), rank != traced);
      if (rank == traced) {
        EXPECT_THAT(std::string(written.message()), cannot_write);
      }
      watch.Close(Watch::kPatience);
    }
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(cannot_write, HasSubstr("the training goes on")));
  }
}

// The times of a context that another recorder follows would be missing, and nobody would know.
TEST(WatchTest, ATrainerOverAContextNeedsTheWatchOfIt) {
  Job job;
  job.config = ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "SGD"}})", 1).value();
  job.steps = 1;
  const auto task = ModelTask::Create(Model(), Data()).value();
  const auto context = device::Context::Create({}).value();
  const auto group = collectives::ThreadGroup::Create({.size = 1}).value();
  const auto communicator = collectives::Init({}, {.group = group}, *context).value();
  EXPECT_THAT(Trainer::Create(job, *task, *communicator, 0, *context, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("watch")));
}

}  // namespace
}  // namespace brigade::train
