// Saves of two ranks while the power fails at any moment, and while syncs are lost: the checkpoint
// before is there, or the new one, whole.

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

  absl::Status Save(CrashFileSystem& disk, WriteMode mode) {
    auto saver = Saver::Create(Options(mode), *zero_, *self_.communicator, *self_.context, disk);
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

// Of a save onto an empty disk: a sync that is lost is one that is missed.
TEST_P(SaverCrashTest, EachSyncIsNeeded) {
  std::set<std::string> synced;
  Files wanted;
  std::unique_ptr<CrashFileSystem> disk;
  // The name without what is another each time.
  const auto name_of = [](const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    return absl::StartsWith(name, ".step-") ? "folder" : name.empty() ? "parent" : name;
  };
  std::vector<std::string> names;
  int folder_syncs = 0;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    TwoRanks ranks(self);
    if (self.rank == 0) {
      disk = std::make_unique<CrashFileSystem>();
      disk->set_fault([&](const std::string& call, const std::string& path) {
        if (absl::StartsWith(call, "sync")) {
          synced.insert(name_of(path));
          if (name_of(path) == "folder") ++folder_syncs;
        }
        return 0;
      });
    }
    self.AwaitOthers();
    EXPECT_OK(ranks.Save(*disk, GetParam()));
    self.AwaitOthers();
    if (self.rank == 0) {
      wanted = FilesOf(*disk, 1);
      names.assign(synced.begin(), synced.end());
      // All files, the folder, the root and its parent.
      EXPECT_EQ(names.size(), wanted.size() - 1 + 3);
      // By each rank that has made a name in it, and before the commit.
      EXPECT_GE(folder_syncs, GetParam() == WriteMode::kPieceFiles ? kRanks + 1 : 1);
    }
    self.AwaitOthers();
    for (const std::string& lost : names) {
      if (self.rank == 0) {
        disk = std::make_unique<CrashFileSystem>();
        disk->set_fault([&](const std::string& call, const std::string& path) {
          return absl::StartsWith(call, "sync") && name_of(path) == lost ? CrashFileSystem::kLost
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
  CrashFileSystem disk(/*blocks=*/2);
  bool written = false;
  disk.set_fault([&](const std::string& call, const std::string&) {
    written = written || call == "write" || call == "allocate";
    return 0;
  });
  OnThreads({.size = kRanks}, [&](Rank& self) {
    TwoRanks ranks(self);
    EXPECT_THAT(ranks.Save(disk, GetParam()),
                brigade::testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                           ::testing::HasSubstr("8192 are free")));
  });
  EXPECT_FALSE(written);
  EXPECT_THAT(disk.All(), ::testing::SizeIs(1));
}

}  // namespace
}  // namespace brigade::checkpoint
