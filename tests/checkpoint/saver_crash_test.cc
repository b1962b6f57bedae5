// Saves of two ranks while the power fails at any moment, and while syncs are lost: the checkpoint
// before is there, or the new one, whole.

#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/other_system_calls.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using collectives::OnThreads;
using collectives::Rank;
using testing::CrashFileSystem;
using testing::FilesOf;
using testing::kRoot;
using Data = CrashFileSystem::Data;
using Names = CrashFileSystem::Names;

constexpr int kRanks = 2;
constexpr Data kData[] = {Data::kNone, Data::kAll, Data::kEvery512, Data::kEvery4096};
constexpr Names kNames[] = {Names::kNone, Names::kAll, Names::kOuter, Names::kInner};

using Files = std::map<std::string, std::string>;

SaverOptions Options(WriteMode mode) {
  SaverOptions options = testing::ToRoot(mode);
  options.keep = 1;
  return options;
}

// A disk from the host of a rank.
class OnHost final : public testing::OtherSystemCalls {
 public:
  OnHost(CrashFileSystem& disk, int host) : OtherSystemCalls(&disk), host_(host) {}

 protected:
  device::SystemCalls* other() override {
    CrashFileSystem::set_host(host_);
    return OtherSystemCalls::other();
  }

 private:
  const int host_;
};

// Two ranks that have made one step, and save on one disk after the other.
class TwoRanks {
 public:
  explicit TwoRanks(Rank& self) : self_(self) {
    zero::ZeroOptions options;
    options.bucket_elements = 1000;
    zero_ = CreateZero(zero::ToyModel(), options, self).value();
    EXPECT_OK(InitializeToy(*zero_));
    zero::ToyTrainer trainer(*zero_, self);
    EXPECT_OK(trainer.Step());
    EXPECT_OK(self.stream->Synchronize());
  }

  // From a host of each.
  absl::Status Save(CrashFileSystem& disk, WriteMode mode) {
    OnHost system(disk, self_.rank);
    auto saver = Saver::Create(Options(mode), *zero_, *self_.communicator, *self_.context, system);
    EXPECT_OK(saver);
    EXPECT_OK((*saver)->Begin(testing::TrainingFields()));
    return (*saver)->Wait().status();
  }

 private:
  Rank& self_;
  std::unique_ptr<zero::ZeroOptimizer> zero_;
};

// A disk with the checkpoint of no step.
std::unique_ptr<CrashFileSystem> DiskWithOne(WriteMode mode) {
  auto disk = std::make_unique<CrashFileSystem>();
  testing::Train({.stage = 1, .ranks = kRanks, .last = 0, .to = disk.get(), .mode = mode});
  return disk;
}

std::unique_ptr<CrashFileSystem> CopyOf(const CrashFileSystem& disk) {
  return disk.AfterCrash(Data::kAll, Names::kAll);
}

// That of the newest checkpoint; -1: none.
int64_t NewestOn(CrashFileSystem& disk) {
  const auto steps = ListCheckpoints(disk, kRoot);
  EXPECT_OK(steps);
  return steps->empty() ? -1 : steps->back();
}

bool TakesRoom(const std::string& call, const std::string& path) {
  return (call == "write" || call == "allocate") && !absl::EndsWith(path, "/.lock");
}

class SaverCrashTest : public ::testing::TestWithParam<WriteMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, SaverCrashTest,
                         ::testing::Values(WriteMode::kInPlace, WriteMode::kPieceFiles),
                         [](const auto& info) {
                           return info.param == WriteMode::kInPlace ? "InPlace" : "PieceFiles";
                         });

TEST_P(SaverCrashTest, APowerFailureLeavesTheOldCheckpointOrTheNewOne) {
  const auto before = DiskWithOne(GetParam());
  const Files old_files = FilesOf(*before, 0);
  ASSERT_FALSE(old_files.empty());
  Files new_files;
  // Which ranks come first is another each time.
  constexpr int kRounds = 2;
  std::unique_ptr<CrashFileSystem> disk;
  // What would be there, had the power failed before some call.
  std::vector<std::unique_ptr<CrashFileSystem>> failures;
  std::vector<std::string> calls;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    TwoRanks ranks(self);
    for (int round = 0; round < kRounds; ++round) {
      if (self.rank == 0) {
        disk = CopyOf(*before);
        failures.clear();
        calls.clear();
        disk->set_fault([&](const std::string& call, const std::string& path) {
          for (const Data data : kData) {
            for (const Names names : kNames) {
              failures.push_back(disk->AfterCrash(data, names));
              calls.push_back(absl::StrCat(call, " of ", path));
            }
          }
          return 0;
        });
      }
      self.AwaitOthers();
      EXPECT_OK(ranks.Save(*disk, GetParam()));
      self.AwaitOthers();
      if (self.rank != 0) continue;
      disk->set_fault(nullptr);
      if (new_files.empty()) new_files = FilesOf(*disk, 1);
      std::set<int64_t> seen;
      for (size_t i = 0; i < failures.size(); ++i) {
        const int64_t newest = NewestOn(*failures[i]);
        seen.insert(newest);
        ASSERT_THAT(newest, ::testing::AnyOf(0, 1)) << "before " << calls[i];
        EXPECT_EQ(FilesOf(*failures[i], newest), newest == 0 ? old_files : new_files)
            << "before " << calls[i];
      }
      EXPECT_EQ(seen.size(), 2u);
      EXPECT_GT(failures.size(), 16u * 30u);
      // It is saved when Wait says so.
      for (const Data data : kData) {
        for (const Names names : kNames) {
          const auto after = disk->AfterCrash(data, names);
          EXPECT_EQ(NewestOn(*after), 1);
          EXPECT_EQ(FilesOf(*after, 1), new_files);
        }
      }
    }
  });
}

// Of a save onto an empty disk, from two hosts: each call that syncs is missed if it is lost.
TEST_P(SaverCrashTest, EachSyncIsNeeded) {
  // By the last name of its path, without what is another each time, and host.
  const auto name_of = [](const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    // All make sure of the root's own name, whoever has made it.
    if (name.empty()) return std::string("parent");
    const bool is_part = absl::StartsWith(name, ".step-");
    return absl::StrCat(is_part ? "folder" : name, " of rank ", CrashFileSystem::host());
  };
  std::map<std::string, int> syncs;
  Files wanted;
  std::unique_ptr<CrashFileSystem> disk;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    TwoRanks ranks(self);
    if (self.rank == 0) {
      disk = std::make_unique<CrashFileSystem>();
      disk->set_fault([&](const std::string& call, const std::string& path) {
        if (absl::StartsWith(call, "sync")) ++syncs[name_of(path)];
        return 0;
      });
    }
    self.AwaitOthers();
    EXPECT_OK(ranks.Save(*disk, GetParam()));
    self.AwaitOthers();
    if (self.rank == 0) {
      disk->set_fault(nullptr);
      wanted = FilesOf(*disk, 1);
      size_t of_rank[kRanks] = {};
      for (const auto& [name, count] : syncs) {
        if (name == "parent") continue;
        EXPECT_EQ(count, 1) << name;
        ++of_rank[name.back() - '0'];
      }
      // Of rank 0, which commits, the folder and the root too.
      const size_t files = wanted.size() - 1;
      if (GetParam() == WriteMode::kInPlace) {
        EXPECT_EQ(of_rank[0], files + 2);
        EXPECT_GT(of_rank[1], files / 3);
      } else {
        EXPECT_EQ(of_rank[0], 2u + 2);
        // Its file, and the name of it.
        EXPECT_EQ(of_rank[1], 2u);
      }
    }
    self.AwaitOthers();
    for (const auto& [lost, count] : syncs) {
      if (self.rank == 0) {
        disk = std::make_unique<CrashFileSystem>();
        disk->set_fault([&, name = lost](const std::string& call, const std::string& path) {
          return absl::StartsWith(call, "sync") && name_of(path) == name ? CrashFileSystem::kLost
                                                                         : 0;
        });
      }
      self.AwaitOthers();
      EXPECT_OK(ranks.Save(*disk, GetParam()));
      self.AwaitOthers();
      if (self.rank != 0) continue;
      bool missed = false;
      for (const Data data : kData) {
        for (const Names kept : kNames) {
          missed = missed || FilesOf(*disk->AfterCrash(data, kept), 1) != wanted;
        }
      }
      EXPECT_TRUE(missed) << lost;
    }
  });
}

TEST_P(SaverCrashTest, AFullDiskIsFoundBeforeAnythingIsWritten) {
  // The lock has one.
  CrashFileSystem disk(/*blocks=*/3);
  bool written = false;
  disk.set_fault([&](const std::string& call, const std::string& path) {
    written = written || TakesRoom(call, path);
    return 0;
  });
  OnThreads({.size = kRanks}, [&](Rank& self) {
    TwoRanks ranks(self);
    EXPECT_THAT(ranks.Save(disk, GetParam()),
                brigade::testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                           ::testing::HasSubstr("8192 are free")));
  });
  EXPECT_FALSE(written);
  EXPECT_THAT(FilesOf(disk, 1), ::testing::IsEmpty());
}

// Each has room for what it writes itself.
TEST(SaverPieceFilesTest, ADiskThatIsTooFullForAllIsFoundBeforeAnythingIsWritten) {
  for (const bool is_shared : {true, false}) {
    SCOPED_TRACE(is_shared);
    // The files take 22 and 6, and the lock one.
    std::vector<std::unique_ptr<CrashFileSystem>> disks;
    // Of two disks, each with a mutex of its own.
    std::atomic<bool> written = false;
    for (int rank = 0; rank < kRanks; ++rank) {
      disks.push_back(std::make_unique<CrashFileSystem>(/*blocks=*/27));
      disks.back()->set_fault([&](const std::string& call, const std::string& path) {
        if (TakesRoom(call, path)) written = true;
        return 0;
      });
    }
    OnThreads({.size = kRanks}, [&](Rank& self) {
      TwoRanks ranks(self);
      CrashFileSystem& disk = *disks[is_shared ? 0 : static_cast<size_t>(self.rank)];
      const absl::Status saved = ranks.Save(disk, WriteMode::kPieceFiles);
      if (is_shared) {
        EXPECT_THAT(saved, brigade::testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                                      ::testing::HasSubstr("106496 are free")));
      } else {
        EXPECT_OK(saved);
      }
    });
    EXPECT_EQ(written, !is_shared);
  }
}

// The name is there, and cannot be synced: it goes again, whenever the power fails.
TEST_P(SaverCrashTest, APowerFailureWhileASaveIsWithdrawnLeavesAWholeOne) {
  const auto before = DiskWithOne(GetParam());
  const Files old_files = FilesOf(*before, 0);
  const auto disk = CopyOf(*before);
  std::vector<std::unique_ptr<CrashFileSystem>> failures;
  Files new_files;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    TwoRanks ranks(self);
    if (self.rank == 0) {
      disk->set_fault([&](const std::string& call, const std::string& path) {
        if (new_files.empty()) new_files = FilesOf(*disk, 1);
        if (new_files.empty()) return 0;
        const bool is_first = failures.empty();
        for (const Data data : kData) {
          for (const Names names : kNames) failures.push_back(disk->AfterCrash(data, names));
        }
        return is_first && call == "open" && path == kRoot ? EIO : 0;
      });
    }
    self.AwaitOthers();
    EXPECT_THAT(ranks.Save(*disk, GetParam()),
                brigade::testing::StatusIs(absl::StatusCode::kUnknown,
                                           ::testing::HasSubstr("cannot open")));
    self.AwaitOthers();
  });
  EXPECT_GT(failures.size(), 16u * 5u);
  for (const auto& failure : failures) {
    const int64_t newest = NewestOn(*failure);
    ASSERT_THAT(newest, ::testing::AnyOf(0, 1));
    EXPECT_EQ(FilesOf(*failure, newest), newest == 0 ? old_files : new_files);
  }
  EXPECT_EQ(NewestOn(*disk->AfterCrash(Data::kNone, Names::kNone)), 0);
}

}  // namespace
}  // namespace brigade::checkpoint
