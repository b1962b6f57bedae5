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
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/checkpoint/weights.h"
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
  int succeeded = 0, failed = 0, withdrawn = 0;
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
        EXPECT_TRUE(FilesOf(*disk, 6).empty());
        withdrawn += has_name ? 1 : 0;
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
  EXPECT_EQ(withdrawn > 0, failed > 0);
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
    if (absl::StrContains(path, "pieces-00001")) fails_ = fd;
    if (absl::StrContains(path, "pieces-00002")) slow_ = fd;
    return fd;
  }
  ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) override {
    if (fd == slow_) {
      ++slow_writes_;
      absl::SleepFor(absl::Milliseconds(100));
      return OtherSystemCalls::WriteAt(fd, from, bytes, offset);
    }
    if (fd != fails_) return OtherSystemCalls::WriteAt(fd, from, bytes, offset);
    // Once the other one has begun.
    while (slow_writes_ == 0) absl::SleepFor(absl::Milliseconds(1));
    errno = EIO;
    return -1;
  }
  int slow_writes() const { return slow_writes_; }

 private:
  std::atomic<int> fails_ = -1, slow_ = -1, slow_writes_ = 0;
};

// Two groups of one rank, each with a part of a model.
TEST(SaverStopTest, PartsOfAModelAreNotSavedAsTheWhole) {
  CrashFileSystem disk;
  OtherSystemCalls system(&disk);
  OnThreads({.size = kRanks}, [&](Rank& self) {
    auto group = self.communicator->Split(self.rank, 0).value();
    zero::ZeroOptions options = ToyOptions(1);
    options.model_ranks = kRanks;
    auto zero = zero::ZeroOptimizer::Create(zero::ToyModel(), options, *group, *self.context,
                                            *self.stream, {self.communicator.get()})
                    .value();
    const auto refused =
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("2 groups have parts of a model, and ModelPart says nothing of how"));
    collectives::Communicator& all = *self.communicator;
    EXPECT_THAT(Saver::Create(ToRoot(WriteMode::kInPlace), *zero, all, *self.context, system),
                refused);
    EXPECT_THAT(Load(kRoot, TrainingFields(), *zero, all, {}, system), refused);
    EXPECT_THAT(LoadWeights(kRoot, *zero, all, {}, system), refused);
    self.AwaitOthers();
  });
}

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
    // The root, and its lock.
    EXPECT_EQ(disk.All().size(), 2u);
  }
}

// Where ranks save is tried before there is something to save.
TEST_P(SaverErrorTest, AnErrorOfAnyCallOfCreateIsOneOfAllRanks) {
  CrashFileSystem disk;
  std::string call, path;
  int64_t next = 0;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    auto zero = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
    for (bool is_over = false; !is_over;) {
      self.AwaitOthers();
      if (self.rank == 0) {
        call.clear();
        path.clear();
        disk.set_fault([&, at = next++](const std::string& name, const std::string& its) mutable {
          if (at-- != 0) return 0;
          call = name;
          path = its;
          return EROFS;
        });
      }
      self.AwaitOthers();
      const auto saver =
          Saver::Create(ToRoot(GetParam()), *zero, *self.communicator, *self.context, disk);
      self.AwaitOthers();
      is_over = call.empty();
      const bool is_survived = is_over || call == "close";
      // Which of the ranks looks for the other's lock, and again if it cannot, is chance.
      const bool is_of_lock = absl::EndsWith(path, "/.lock");
      // The end of a saver calls too.
      self.AwaitOthers();
      if (!is_of_lock) {
        EXPECT_EQ(saver.ok(), is_survived) << saver.status();
      }
      if (saver.ok()) continue;
      EXPECT_THAT(std::string(saver.status().message()), MatchesRegex("(rank .: )?cannot .* /.*"));
    }
  });
  EXPECT_GT(next, 5);
}

// Of hosts with disks of their own: what fails on one leaves nothing on the others, and the step
// can be saved again.
TEST(SaverStopTest, ACommitThatFailsOnOneHostIsWithdrawnFromTheOthers) {
  CrashFileSystem disks[kRanks];
  OnThreads({.size = kRanks}, [&](Rank& self) {
    CrashFileSystem& disk = disks[self.rank];
    auto zero = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
    SaverOptions options = ToRoot(WriteMode::kPieceFiles);
    options.keep = 1;
    auto saver = Saver::Create(options, *zero, *self.communicator, *self.context, disk).value();
    const auto save = [&] {
      const absl::Status begun = saver->Begin(TrainingFields());
      return begun.ok() ? saver->Wait().status() : begun;
    };
    ASSERT_OK(save());
    zero::ToyTrainer trainer(*zero, self);
    ASSERT_OK(trainer.Step());
    for (const std::string fails : {"rename", "sync"}) {
      if (self.rank == 1) {
        disk.set_fault(
            [&, failed = false](const std::string& call, const std::string& path) mutable {
              const bool is_last = fails == "sync" ? path == kRoot : !absl::EndsWith(path, ".part");
              if (failed || call != fails || !is_last) return 0;
              failed = true;
              return EIO;
            });
      }
      EXPECT_THAT(save(), StatusIs(absl::StatusCode::kUnknown,
                                   AllOf(HasSubstr(absl::StrCat("rank 1: cannot ", fails)),
                                         HasSubstr(kRoot))));
      disk.set_fault(nullptr);
      EXPECT_EQ(*ListCheckpoints(disk, kRoot), std::vector<int64_t>({0}));
      EXPECT_TRUE(FilesOf(disk, 1).empty());
    }
    ASSERT_OK(save());
    EXPECT_EQ(*ListCheckpoints(disk, kRoot), std::vector<int64_t>({1}));
  });
}

// A host that does not see the names that another one makes.
class BlindHost final : public OtherSystemCalls {
 public:
  using OtherSystemCalls::OtherSystemCalls;

  int Open(const std::string& path, int flags, mode_t mode) override {
    if (!absl::StrContains(path, "/step-")) return OtherSystemCalls::Open(path, flags, mode);
    errno = ENOENT;
    return -1;
  }
};

TEST(SaverStopTest, WhatARankDoesNotSeeIsNotSaved) {
  CrashFileSystem disk;
  BlindHost blind(&disk);
  OnThreads({.size = kRanks}, [&](Rank& self) {
    auto zero = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
    device::SystemCalls& system = self.rank == 1 ? static_cast<device::SystemCalls&>(blind) : disk;
    auto saver = Saver::Create(ToRoot(WriteMode::kPieceFiles), *zero, *self.communicator,
                               *self.context, system)
                     .value();
    ASSERT_OK(saver->Begin(TrainingFields()));
    EXPECT_THAT(saver->Wait(),
                StatusIs(absl::StatusCode::kUnavailable,
                         HasSubstr("rank 1: /checkpoints/step-00000000 is no checkpoint here")));
  });
  // The root, and its lock.
  EXPECT_EQ(disk.All().size(), 2u);
}

// Over a network that loses answers: each request that names something is made twice, and what
// the second one says is told.
class RepeatedRequests final : public OtherSystemCalls {
 public:
  using OtherSystemCalls::OtherSystemCalls;

  int MakeFolder(const std::string& path, mode_t mode) override {
    return Repeat([&] { return OtherSystemCalls::MakeFolder(path, mode); });
  }
  int RemoveFolder(const std::string& path) override {
    return Repeat([&] { return OtherSystemCalls::RemoveFolder(path); });
  }
  int Unlink(const std::string& path) override {
    return Repeat([&] { return OtherSystemCalls::Unlink(path); });
  }
  int Rename(const std::string& from, const std::string& to) override {
    return Repeat([&] { return OtherSystemCalls::Rename(from, to); });
  }
  // As where it is two calls: it looks at `to` once.
  int RenameToNew(const std::string& from, const std::string& to) override {
    if (OtherSystemCalls::RenameToNew(from, to) != 0) return -1;
    ++repeated_;
    errno = ENOENT;
    return -1;
  }
  int repeated() const { return repeated_; }

 private:
  template <typename Call>
  int Repeat(const Call& call) {
    if (call() != 0) return -1;
    ++repeated_;
    return call();
  }

  std::atomic<int> repeated_ = 0;
};

TEST_P(SaverErrorTest, RequestsThatTheNetworkRepeatsAreNoErrors) {
  CrashFileSystem disk;
  RepeatedRequests system(&disk);
  OnThreads({.size = kRanks}, [&](Rank& self) {
    auto zero = CreateZero(zero::ToyModel(), ToyOptions(1), self).value();
    zero::ToyTrainer trainer(*zero, self);
    SaverOptions options = ToRoot(GetParam());
    options.keep = 1;
    auto saver = Saver::Create(options, *zero, *self.communicator, *self.context, system).value();
    for (int save = 0; save < 2; ++save) {
      ASSERT_OK(saver->Begin(TrainingFields()));
      const auto report = saver->Wait();
      ASSERT_OK(report);
      EXPECT_OK(report->older_removed);
      ASSERT_OK(trainer.Step());
    }
  });
  EXPECT_EQ(*ListCheckpoints(disk, kRoot), std::vector<int64_t>({1}));
  // The folder, its two names, and what removes the older one.
  EXPECT_GT(system.repeated(), 2 * 3 + 5);
}

TEST_P(SaverErrorTest, ASignalIsNoErrorWhereACallMayBeRepeated) {
  FailEachCall({EINTR, {"begin to write", "open", "write", "allocate", "close"}});
}

TEST_P(SaverErrorTest, ShortWritesAreNoError) {
  FailEachCall({CrashFileSystem::kShort, {"write", "read"}});
}

}  // namespace
}  // namespace brigade::checkpoint
