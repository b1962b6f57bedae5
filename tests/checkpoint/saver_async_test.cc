// The training goes on while a save is in flight, and what is saved is the state at its begin.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/other_system_calls.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using ::testing::AllOf;
using testing::CrashFileSystem;
using testing::FilesOf;
using ::testing::HasSubstr;
using testing::kRoot;
using testing::SlowDisk;
using testing::ToRoot;
using testing::ToyOptions;
using testing::TrainingFields;
using zero::Capture;
using zero::CapturedState;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

// A rank's training after step 3.
struct Training {
  explicit Training(Rank& self)
      : zero(CreateZero(zero::ToyModel(), ToyOptions(2), self).value()), trainer(*zero, self) {
    EXPECT_OK(InitializeToy(*zero));
    while (trainer.step < 3) EXPECT_OK(trainer.Step());
    EXPECT_OK(self.stream->Synchronize());
  }

  std::unique_ptr<zero::ZeroOptimizer> zero;
  zero::ToyTrainer trainer;
};

std::unique_ptr<Saver> CreateSaver(const Training& training, Rank& self,
                                   device::SystemCalls& system,
                                   const SaverOptions& options = ToRoot()) {
  auto saver = Saver::Create(options, *training.zero, *self.communicator, *self.context, system);
  EXPECT_OK(saver);
  return *std::move(saver);
}

// A call of all ranks: step 3 is this state.
void ExpectSaved(const CapturedState& state, Rank& self, CrashFileSystem& disk) {
  auto zero = CreateZero(zero::ToyModel(), ToyOptions(0), self).value();
  ASSERT_OK(Load(CheckpointPath(kRoot, 3), TrainingFields(), *zero, *self.communicator, {}, disk));
  auto again = CreateZero(zero::ToyModel(), ToyOptions(2), self).value();
  ASSERT_OK(Load(CheckpointPath(kRoot, 3), TrainingFields(), *again, *self.communicator, {}, disk));
  EXPECT_EQ(Capture(*again, self).value(), state);
}

void ExpectNoLitter(const CrashFileSystem& disk) {
  EXPECT_EQ(disk.open_files(), 0);
  for (const auto& [path, bytes] : disk.All()) {
    EXPECT_FALSE(absl::StrContains(path, ".part")) << path;
  }
}

class SaverAsyncTest : public ::testing::TestWithParam<WriteMode> {
 protected:
  bool in_place() const { return GetParam() == WriteMode::kInPlace; }
  // How many writes wait when the disk takes nothing: of rank 0's headers, or of all ranks.
  int Writers(int ranks) const { return in_place() ? 1 : ranks; }

  CrashFileSystem disk_;
  SlowDisk slow_{&disk_};
};

INSTANTIATE_TEST_SUITE_P(Modes, SaverAsyncTest,
                         ::testing::Values(WriteMode::kInPlace, WriteMode::kPieceFiles),
                         [](const auto& info) {
                           return info.param == WriteMode::kInPlace ? "InPlace" : "PieceFiles";
                         });

TEST_P(SaverAsyncTest, StepsRunWhileTheDiskTakesNothing) {
  slow_.Close();
  OnThreads({.size = 2}, [&](Rank& self) {
    Training training(self);
    SaverOptions options = ToRoot(GetParam());
    options.staging_bytes = 1 << 20;
    const auto saver = CreateSaver(training, self, slow_, options);
    EXPECT_LT(saver->staging_bytes(), 1 << 20);
    const auto before = Capture(*training.zero, self).value();
    const int64_t before_begin = self.context->host_waits();
    ASSERT_OK(saver->Begin(TrainingFields()));
    // This thread's: those of the saver's own come later, and are of the step state and of chunks.
    EXPECT_LE(self.context->host_waits(), before_begin + 2);
    slow_.AwaitWrites(Writers(self.size));
    const int64_t waits = self.context->host_waits();
    for (int step = 0; step < 3; ++step) ASSERT_OK(training.trainer.Step());
    EXPECT_EQ(self.context->host_waits(), waits);
    EXPECT_EQ(training.zero->state_wait_ns(), 0);
    // The masters are others.
    const auto after = Capture(*training.zero, self).value();
    EXPECT_EQ(after.step.iteration, 6);
    EXPECT_NE(after.arrays, before.arrays);
    EXPECT_TRUE(saver->in_flight());
    self.AwaitOthers();
    slow_.Open();
    const auto report = saver->Wait();
    ASSERT_OK(report);
    EXPECT_EQ(report->iteration, 3);
    EXPECT_EQ(report->path, CheckpointPath(kRoot, 3));
    EXPECT_GT(report->seconds, 0);
    ExpectSaved(before, self, disk_);
  });
  ExpectNoLitter(disk_);
}

TEST_P(SaverAsyncTest, WithASmallRingTheUpdateWaitsForTheDisk) {
  slow_.Close();
  OnThreads({.size = 2}, [&](Rank& self) {
    Training training(self);
    SaverOptions options = ToRoot(GetParam());
    options.staging_bytes = 2000;
    const auto saver = CreateSaver(training, self, slow_, options);
    EXPECT_EQ(saver->staging_bytes(), 2000);
    const auto before = Capture(*training.zero, self).value();
    ASSERT_OK(saver->Begin(TrainingFields()));
    slow_.AwaitWrites(Writers(self.size));
    // Passes do not change the state.
    ASSERT_OK(training.trainer.MicroBatch(0));
    EXPECT_EQ(training.zero->state_wait_ns(), 0);
    self.AwaitOthers();
    std::thread opens([&] {
      if (self.rank != 0) return;
      absl::SleepFor(absl::Milliseconds(100));
      slow_.Open();
    });
    EXPECT_OK(training.zero->Step());
    opens.join();
    EXPECT_GT(training.zero->state_wait_ns(), absl::ToInt64Nanoseconds(absl::Milliseconds(50)));
    const int64_t waited = training.zero->state_wait_ns();
    training.trainer.step = 4;
    ASSERT_OK(training.trainer.Step());
    EXPECT_EQ(training.zero->state_wait_ns(), waited);
    ASSERT_OK(saver->Wait());
    ExpectSaved(before, self, disk_);
  });
  ExpectNoLitter(disk_);
}

TEST_P(SaverAsyncTest, OneSaveIsInFlightAndItsEndIsToldOnce) {
  slow_.Close();
  OnThreads({.size = 2}, [&](Rank& self) {
    Training training(self);
    auto saver = CreateSaver(training, self, slow_, ToRoot(GetParam()));
    EXPECT_FALSE(saver->in_flight());
    EXPECT_EQ(saver->Poll().value(), std::nullopt);
    EXPECT_THAT(saver->Wait(), StatusIs(kPrecondition, "checkpoint: no save is in flight"));
    ASSERT_OK(saver->Begin(TrainingFields()));
    slow_.AwaitWrites(Writers(self.size));
    EXPECT_THAT(saver->Begin(TrainingFields()),
                StatusIs(kPrecondition, "checkpoint: a save is in flight"));
    EXPECT_EQ(saver->Poll().value(), std::nullopt);
    EXPECT_TRUE(saver->in_flight());
    self.AwaitOthers();
    slow_.Open();
    auto end = saver->Poll();
    for (; end.ok() && !end->has_value(); end = saver->Poll())
      absl::SleepFor(absl::Milliseconds(1));
    ASSERT_OK(end);
    EXPECT_EQ((*end)->iteration, 3);
    EXPECT_FALSE(saver->in_flight());
    EXPECT_EQ(saver->Poll().value(), std::nullopt);
    EXPECT_THAT(saver->Wait().status(), StatusIs(kPrecondition));
    // In the middle of a step: nothing is begun.
    ASSERT_OK(training.trainer.MicroBatch(0));
    EXPECT_THAT(saver->Begin(TrainingFields()), StatusIs(kPrecondition));
    EXPECT_FALSE(saver->in_flight());
    ASSERT_OK(training.zero->Step());
    // Poll tells errors too.
    saver.reset();
    self.AwaitOthers();
    const auto there = CreateSaver(training, self, slow_, ToRoot(GetParam()));
    ASSERT_OK(there->Begin(TrainingFields()));
    ASSERT_OK(there->Wait());
    ASSERT_OK(there->Begin(TrainingFields()));
    for (end = there->Poll(); end.ok() && !end->has_value(); end = there->Poll()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_THAT(end.status(),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("step-00000004")));
    EXPECT_EQ(there->Poll().value(), std::nullopt);
  });
  ExpectNoLitter(disk_);
}

// Of rank 1, which has not asked for the end of the first save when rank 0 begins the next one.
TEST_P(SaverAsyncTest, ASaveThatIsInFlightOnAnotherRankAloneIsRefusedOnBoth) {
  OnThreads({.size = 2, .timeout = absl::Seconds(10)}, [&](Rank& self) {
    Training training(self);
    const auto saver = CreateSaver(training, self, slow_, ToRoot(GetParam()));
    for (int time = 0; time < 3; ++time) {
      ASSERT_OK(saver->Begin(TrainingFields()));
      if (self.rank == 0) {
        ASSERT_OK(saver->Wait());
        ASSERT_OK(training.trainer.Step());
        ASSERT_OK(saver->Begin(TrainingFields()));
        EXPECT_THAT(saver->Wait(),
                    StatusIs(kPrecondition, "rank 1: checkpoint: a save is in flight"));
      } else {
        // Also after it has ended.
        if (time == 1) absl::SleepFor(absl::Milliseconds(100));
        ASSERT_OK(training.trainer.Step());
        EXPECT_THAT(saver->Begin(TrainingFields()),
                    StatusIs(kPrecondition, "checkpoint: a save is in flight"));
        EXPECT_OK(saver->Wait());
      }
    }
    ASSERT_OK(saver->Begin(TrainingFields()));
    ASSERT_OK(saver->Wait());
  });
  EXPECT_EQ(*ListCheckpoints(disk_, kRoot), std::vector<int64_t>({3, 4, 5, 6}));
  ExpectNoLitter(disk_);
}

// The chunks of a save belong to it until its last thread is done with them, whatever ends first.
TEST_P(SaverAsyncTest, AStepThatFailsAndIsCancelledTakesNothingFromASave) {
  for (const bool is_destroyed : {true, false}) {
    for (const int64_t staging_bytes : {int64_t{2000}, int64_t{1} << 20}) {
      CrashFileSystem disk;
      SlowDisk slow(&disk);
      slow.Close();
      OnThreads({.size = 2}, [&](Rank& self) {
        Training training(self);
        SaverOptions options = ToRoot(GetParam());
        options.staging_bytes = staging_bytes;
        auto saver = CreateSaver(training, self, slow, options);
        const auto before = Capture(*training.zero, self).value();
        ASSERT_OK(saver->Begin(TrainingFields()));
        slow.AwaitWrites(Writers(self.size));
        ASSERT_OK(training.trainer.MicroBatch(0));
        for (device::Stream* const stream : {self.stream.get(), &training.zero->step_stream()}) {
          ASSERT_OK(stream->Enqueue(
              {"fails"}, [](device::ThreadPool&) { return absl::DataLossError("of a stream"); }));
        }
        self.AwaitOthers();
        std::thread opens([&] {
          absl::SleepFor(absl::Milliseconds(20));
          slow.Open();
        });
        EXPECT_OK(training.zero->CancelStep());
        if (is_destroyed) {
          saver.reset();
        } else {
          EXPECT_OK(saver->Wait());
          ExpectSaved(before, self, disk);
        }
        opens.join();
        ASSERT_OK(training.trainer.Step());
        ASSERT_OK(self.stream->Synchronize());
        EXPECT_EQ(Capture(*training.zero, self).value().step.iteration, 4);
      });
    }
  }
}

TEST_P(SaverAsyncTest, ItsDestructionEndsASaveThatIsInFlight) {
  for (const bool all_ranks : {true, false}) {
    CrashFileSystem disk;
    SlowDisk slow(&disk);
    slow.Close();
    OnThreads({.size = 3}, [&](Rank& self) {
      Training training(self);
      SaverOptions options = ToRoot(GetParam());
      options.staging_bytes = 2000;
      auto saver = CreateSaver(training, self, slow, options);
      ASSERT_OK(saver->Begin(TrainingFields()));
      slow.AwaitWrites(Writers(self.size));
      self.AwaitOthers();
      std::thread opens([&] {
        absl::SleepFor(absl::Milliseconds(50));
        slow.Open();
      });
      if (all_ranks || self.rank == 1) {
        saver.reset();
      } else {
        const absl::Status ended = saver->Wait().status();
        EXPECT_FALSE(ended.ok());
        // The ranks cannot speak with each other any more.
        ASSERT_OK(saver->Begin(TrainingFields()));
        EXPECT_FALSE(saver->Wait().ok());
      }
      opens.join();
      // The state is not lent for ever.
      ASSERT_OK(training.trainer.Step());
      ASSERT_OK(self.stream->Synchronize());
      EXPECT_EQ(Capture(*training.zero, self).value().step.iteration, 4);
    });
    ExpectNoLitter(disk);
    EXPECT_TRUE(FilesOf(disk, 3).empty());
  }
}

TEST_P(SaverAsyncTest, ADiskThatIsSlowerThanTheRanksTimeoutIsNoError) {
  slow_.Close();
  OnThreads({.size = 2, .timeout = absl::Seconds(1)}, [&](Rank& self) {
    Training training(self);
    const auto saver = CreateSaver(training, self, slow_, ToRoot(GetParam()));
    ASSERT_OK(saver->Begin(TrainingFields()));
    slow_.AwaitWrites(1);
    if (self.rank == 0) {
      absl::SleepFor(absl::Seconds(3));
      slow_.Open();
    }
    EXPECT_OK(saver->Wait());
  });
  ExpectNoLitter(disk_);
}

TEST_P(SaverAsyncTest, RanksAtDifferentStepsAreRefusedOnAll) {
  OnThreads({.size = 2}, [&](Rank& self) {
    {
      Training training(self);
      auto saver = Saver::Create(ToRoot(GetParam()), *training.zero, *self.communicator,
                                 *self.context, slow_)
                       .value();
      // As if it had made another step. Its steps end on a stream of its own.
      ASSERT_OK(training.zero->step_stream().Synchronize());
      auto* const state = const_cast<kernels::StepState*>(training.zero->controller().state());
      state->iteration += self.rank;
      ASSERT_OK(saver->Begin(TrainingFields()));
      EXPECT_THAT(saver->Wait(), StatusIs(absl::StatusCode::kInvalidArgument,
                                          "checkpoint: rank 1 is not at the step of rank 0"));
      state->iteration -= self.rank;
      ASSERT_OK(training.trainer.Step());
      ASSERT_OK(self.stream->Synchronize());
    }
    self.AwaitOthers();
  });
  // The root, and its lock.
  EXPECT_EQ(disk_.All().size(), 2u);
}

}  // namespace
}  // namespace brigade::checkpoint
