// System calls of a save fail, on any rank: an error on all ranks, the old checkpoint stays, and
// the training goes on.

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/checkpoint/checkpoint_folder.h"
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
using ::testing::MatchesRegex;
using testing::OtherSystemCalls;
using testing::ToRoot;
using testing::ToyOptions;
using testing::TrainingFields;
using zero::Capture;

constexpr int kRanks = 2;

// A training that has saved step 3 and is at step 6, and the disk at that time.
struct Training {
  Training(Rank& self, const SaverOptions& options, CrashFileSystem& disk,
           OtherSystemCalls& system) {
    zero = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
    EXPECT_OK(InitializeToy(*zero));
    trainer = std::make_unique<zero::ToyTrainer>(*zero, self);
    if (self.rank == 0) system.set(&disk);
    self.AwaitOthers();
    saver = Saver::Create(options, *zero, *self.communicator, *self.context, system).value();
    TrainTo(3);
    EXPECT_OK(Save());
    TrainTo(6);
  }

  void TrainTo(int step) const {
    while (trainer->step < step) ASSERT_OK(trainer->Step());
  }
  absl::Status Save() const {
    const absl::Status begun = saver->Begin(TrainingFields());
    EXPECT_OK(begun);
    const auto report = saver->Wait();
    if (report.ok()) {
      EXPECT_OK(report->older_removed);
    }
    return report.status();
  }

  std::unique_ptr<zero::ZeroOptimizer> zero;
  std::unique_ptr<zero::ToyTrainer> trainer;
  std::unique_ptr<Saver> saver;
};

class SaverErrorTest : public ::testing::TestWithParam<WriteMode> {
 protected:
  // Fails `call` of the second save, and so on until there are no more calls. `succeeds`: the save
  // does all the same, by calls of this name.
  struct Failure {
    int error = 0;
    std::vector<std::string> survived = {};
  };
  void FailEachCall(const Failure& failure);
};

INSTANTIATE_TEST_SUITE_P(Modes, SaverErrorTest,
                         ::testing::Values(WriteMode::kInPlace, WriteMode::kPieceFiles),
                         [](const auto& info) {
                           return info.param == WriteMode::kInPlace ? "InPlace" : "PieceFiles";
                         });

void SaverErrorTest::FailEachCall(const Failure& failure) {
  CrashFileSystem first;
  OtherSystemCalls system(&first);
  // Of one try; a disk like the first, and what became of it.
  std::unique_ptr<CrashFileSystem> disk;
  std::string call, path;
  bool has_name = false, is_over = false;
  int64_t next = 0;
  absl::Status results[kRanks];
  int succeeded = 0, failed = 0;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    SaverOptions options = ToRoot(GetParam());
    const Training training(self, options, first, system);
    const auto before = Capture(*training.zero, self).value();
    for (self.AwaitOthers(); !is_over; self.AwaitOthers()) {
      if (self.rank == 0) {
        disk = first.AfterCrash(CrashFileSystem::Data::kAll, CrashFileSystem::Names::kAll);
        system.set(disk.get());
        call.clear();
        has_name = false;
        disk->set_fault([&, at = next++](const std::string& name, const std::string& its) mutable {
          // Of which there are two kinds.
          const bool may_be_short = name == "write" || name == "read";
          if ((failure.error == CrashFileSystem::kShort && !may_be_short) || at-- != 0) {
            has_name = has_name || (name == "rename" && !absl::EndsWith(its, ".part"));
            return 0;
          }
          call = name;
          path = its;
          return failure.error;
        });
      }
      self.AwaitOthers();
      results[self.rank] = training.Save();
      self.AwaitOthers();
      if (self.rank != 0) continue;
      disk->set_fault(nullptr);
      SCOPED_TRACE(absl::StrCat("errno ", failure.error, " of ", call, " ", path));
      is_over = call.empty();
      EXPECT_EQ(disk->open_files(), 0);
      EXPECT_EQ(FilesOf(*disk, 3), FilesOf(first, 3));
      EXPECT_EQ(results[0].code(), results[1].code()) << results[0] << results[1];
      for (const auto& [name, bytes] : disk->All()) {
        EXPECT_FALSE(absl::StrContains(name, ".part")) << name;
      }
      if (results[0].ok()) {
        ++succeeded;
        EXPECT_EQ(FilesOf(*disk, 6).empty(), false);
      } else {
        ++failed;
        EXPECT_EQ(FilesOf(*disk, 6).empty(), !has_name);
        for (const absl::Status& result : results) {
          EXPECT_THAT(std::string(result.message()),
                      AllOf(HasSubstr("rank "), HasSubstr(call == "list" ? kRoot : path),
                            HasSubstr("cannot ")));
        }
      }
      if (is_over || absl::c_linear_search(failure.survived, call)) {
        EXPECT_OK(results[0]);
      }
    }
    EXPECT_EQ(Capture(*training.zero, self).value(), before);
    // As if there had been no save.
    training.TrainTo(8);
    ASSERT_OK(training.Save());
    const auto after = Capture(*training.zero, self).value();
    if (self.rank == 0) system.set(&first);
    self.AwaitOthers();
    auto undisturbed = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
    ASSERT_OK(InitializeToy(*undisturbed));
    zero::ToyTrainer trainer(*undisturbed, self);
    while (trainer.step < 8) ASSERT_OK(trainer.Step());
    EXPECT_EQ(Capture(*undisturbed, self).value(), after);
  });
  EXPECT_GT(next, failure.error == CrashFileSystem::kShort ? 10 : 40);
  EXPECT_EQ(failed > 0, failure.error != CrashFileSystem::kShort);
  EXPECT_GT(succeeded, 0);
  EXPECT_EQ(ListCheckpoints(*disk, kRoot).value().back(), 8);
}

// Where they may fail: room is asked for, bytes are told to begin to be written, and files that are
// read are closed.
TEST_P(SaverErrorTest, AnErrorOfAnyCallIsOneOfAllRanksAndLeavesTheOldOne) {
  for (const int error : {EIO, EDQUOT}) FailEachCall({error, {"begin to write"}});
}

// A disk on which rank 0's piece file takes nothing, and the other's takes long.
class HalfOfADisk final : public OtherSystemCalls {
 public:
  using OtherSystemCalls::OtherSystemCalls;

  int Open(const std::string& path, int flags, mode_t mode) override {
    const int fd = OtherSystemCalls::Open(path, flags, mode);
    if (absl::StrContains(path, "pieces-00002")) slow_ = fd;
    return fd;
  }
  ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) override {
    if (fd == slow_) {
      ++slow_writes_;
      absl::SleepFor(absl::Milliseconds(100));
      return OtherSystemCalls::WriteAt(fd, from, bytes, offset);
    }
    // Once the other one has begun.
    while (slow_writes_ == 0) absl::SleepFor(absl::Milliseconds(1));
    errno = EIO;
    return -1;
  }
  int slow_writes() const { return slow_writes_; }

 private:
  std::atomic<int> slow_ = -1, slow_writes_ = 0;
};

TEST(SaverStopTest, ARankThatStopsForAnotherOneTellsItsError) {
  CrashFileSystem disk;
  HalfOfADisk half(&disk);
  OnThreads({.size = kRanks}, [&](Rank& self) {
    auto zero = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
    auto saver = Saver::Create(ToRoot(WriteMode::kPieceFiles), *zero, *self.communicator,
                               *self.context, half)
                     .value();
    ASSERT_OK(saver->Begin(TrainingFields()));
    EXPECT_THAT(std::string(saver->Wait().status().message()),
                AllOf(HasSubstr("rank 0: cannot write "), HasSubstr("pieces-00001-of-00002.bin")));
  });
  // It has stopped.
  EXPECT_LT(half.slow_writes(), 10);
  EXPECT_EQ(disk.open_files(), 0);
}

// A disk on which rank 1 creates its file while rank 0 gives up the folder: after the names in it
// were listed, and before it goes.
class GivenUpFolder final : public OtherSystemCalls {
 public:
  using OtherSystemCalls::OtherSystemCalls;

  // Until rank 1 is about to create its file.
  void AwaitFile() { Await(opens_); }

  int List(const std::string& path, std::vector<std::string>& names) override {
    const int listed = OtherSystemCalls::List(path, names);
    if (absl::StrContains(path, ".part-")) Tell(listed_);
    return listed;
  }
  int Open(const std::string& path, int flags, mode_t mode) override {
    if (!absl::StrContains(path, "pieces-00002")) {
      return OtherSystemCalls::Open(path, flags, mode);
    }
    Tell(opens_);
    Await(listed_);
    const int fd = OtherSystemCalls::Open(path, flags, mode);
    Tell(opened_);
    return fd;
  }
  int RemoveFolder(const std::string& path) override {
    if (IsTold(opens_)) Await(opened_);
    return OtherSystemCalls::RemoveFolder(path);
  }

 private:
  void Tell(bool& event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    event = true;
    changed_.notify_all();
  }
  bool IsTold(const bool& event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return event;
  }
  void Await(const bool& event) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return event; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool opens_ = false, listed_ = false, opened_ = false;
};

// Whichever rank has made it.
TEST(SaverStopTest, AFolderThatOneRankGivesUpIsNoLitter) {
  for (int run = 0; run < 10; ++run) {
    CrashFileSystem disk;
    GivenUpFolder given_up(&disk);
    OnThreads({.size = kRanks}, [&](Rank& self) {
      auto zero = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
      auto saver = Saver::Create(ToRoot(WriteMode::kPieceFiles), *zero, *self.communicator,
                                 *self.context, given_up)
                       .value();
      ASSERT_OK(saver->Begin(TrainingFields()));
      given_up.AwaitFile();
      if (self.rank == 0) {
        saver.reset();
      } else {
        EXPECT_FALSE(saver->Wait().ok());
      }
    });
    EXPECT_EQ(disk.open_files(), 0);
    // The root.
    EXPECT_EQ(disk.All().size(), 1u);
  }
}

// Where ranks save is tried before there is something to save.
TEST_P(SaverErrorTest, AnErrorOfAnyCallOfCreateIsOneOfAllRanks) {
  CrashFileSystem disk;
  std::string call;
  int64_t next = 0;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    auto zero = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
    for (bool is_over = false; !is_over;) {
      self.AwaitOthers();
      if (self.rank == 0) {
        call.clear();
        disk.set_fault([&, at = next++](const std::string& name, const std::string&) mutable {
          if (at-- != 0) return 0;
          call = name;
          return EROFS;
        });
      }
      self.AwaitOthers();
      const auto saver =
          Saver::Create(ToRoot(GetParam()), *zero, *self.communicator, *self.context, disk);
      self.AwaitOthers();
      is_over = call.empty();
      EXPECT_EQ(saver.ok(), is_over || call == "close") << call << saver.status();
      if (saver.ok()) continue;
      EXPECT_THAT(std::string(saver.status().message()), MatchesRegex("(rank .: )?cannot .* /.*"));
    }
  });
  EXPECT_GT(next, 5);
}

// Of a request that the network has repeated: to make a folder that then was there already.
class RepeatedRequests final : public OtherSystemCalls {
 public:
  using OtherSystemCalls::OtherSystemCalls;

  int MakeFolder(const std::string& path, mode_t mode) override {
    if (OtherSystemCalls::MakeFolder(path, mode) != 0) return -1;
    if (!repeats_ || !absl::StrContains(path, ".part-")) return 0;
    errno = EEXIST;
    return -1;
  }
  void Begin() { repeats_ = true; }

 private:
  std::atomic<bool> repeats_ = false;
};

TEST(SaverStopTest, WhatNoRankHasMadeACheckpointIsNotSaved) {
  CrashFileSystem disk;
  RepeatedRequests repeated(&disk);
  OnThreads({.size = kRanks}, [&](Rank& self) {
    auto zero = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
    auto saver = Saver::Create(ToRoot(WriteMode::kPieceFiles), *zero, *self.communicator,
                               *self.context, repeated)
                     .value();
    self.AwaitOthers();
    repeated.Begin();
    ASSERT_OK(saver->Begin(TrainingFields()));
    EXPECT_THAT(saver->Wait(),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("rank "), HasSubstr("no rank has made /checkpoints/step-"
                                                             "00000000 a checkpoint"))));
  });
  EXPECT_TRUE(ListCheckpoints(disk, kRoot).value().empty());
}

TEST_P(SaverErrorTest, ASignalIsNoErrorWhereACallMayBeRepeated) {
  FailEachCall({EINTR, {"begin to write", "open", "write", "allocate", "close"}});
}

TEST_P(SaverErrorTest, ShortWritesAreNoError) {
  FailEachCall({CrashFileSystem::kShort, {"write", "read"}});
}

}  // namespace
}  // namespace brigade::checkpoint
