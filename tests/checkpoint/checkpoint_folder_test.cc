#include "brigade/checkpoint/checkpoint_folder.h"

#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/other_system_calls.h"
#include "brigade/tests/checkpoint/read_all.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::checkpoint::testing::CrashFileSystem;
using ::brigade::checkpoint::testing::ReadAll;
using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Data = CrashFileSystem::Data;
using Names = CrashFileSystem::Names;

constexpr char kRoot[] = "/checkpoints";

// More than a block of each size.
std::string Content(int64_t step, int file) {
  return std::string(9000, static_cast<char>('a' + 2 * step + file));
}

// Two files, and a manifest that has their sums.
absl::Status Save(device::SystemCalls& system, int64_t step, bool* is_saved = nullptr) {
  BRIGADE_ASSIGN_OR_RETURN(auto checkpoint,
                           NewCheckpoint::Begin(system, kRoot, step, 18000, "0123456789abcdef"));
  std::string manifest;
  for (int i = 0; i < 2; ++i) {
    const std::string content = Content(step, i);
    BRIGADE_ASSIGN_OR_RETURN(
        auto file, WritableFile::Create(system, absl::StrCat(checkpoint.path(), "/", i), 9000));
    BRIGADE_RETURN_IF_ERROR(file.Write(content, 0));
    BRIGADE_RETURN_IF_ERROR(file.Finish());
    absl::StrAppend(&manifest, device::Crc32c(content), " ");
  }
  BRIGADE_RETURN_IF_ERROR(checkpoint.Commit(manifest));
  if (is_saved != nullptr) *is_saved = true;
  return RemoveOldCheckpoints(system, kRoot, step, 1);
}

// Nothing but a manifest.
void SaveEmpty(device::SystemCalls& system, const std::string& root, int64_t step) {
  auto checkpoint = NewCheckpoint::Begin(system, root, step, 0, absl::StrCat(step));
  ASSERT_OK(checkpoint);
  ASSERT_OK(checkpoint->Commit(""));
}

void MakeFile(device::SystemCalls& system, const std::string& path, const std::string& content) {
  auto file = WritableFile::Create(system, path, 0);
  ASSERT_OK(file);
  ASSERT_OK(file->Write(content, 0));
  ASSERT_OK(file->Finish());
}

// The step of the newest checkpoint, if all are whole; -1 if there is none.
absl::StatusOr<int64_t> NewestWhole(device::SystemCalls& system) {
  BRIGADE_ASSIGN_OR_RETURN(const auto steps, ListCheckpoints(system, kRoot));
  for (const int64_t step : steps) {
    const std::string path = CheckpointPath(kRoot, step);
    std::string manifest;
    for (int i = 0; i < 2; ++i) {
      BRIGADE_ASSIGN_OR_RETURN(const std::string content,
                               ReadAll(system, absl::StrCat(path, "/", i)));
      if (content != Content(step, i)) return absl::DataLossError(absl::StrCat("file ", i));
      absl::StrAppend(&manifest, device::Crc32c(content), " ");
    }
    BRIGADE_ASSIGN_OR_RETURN(const std::string there,
                             ReadAll(system, absl::StrCat(path, "/", kManifestName)));
    if (there != manifest) return absl::DataLossError("manifest");
  }
  return steps.empty() ? -1 : steps.back();
}

TEST(CheckpointFolderTest, IsAFolderWithItsNameOnceItIsWhole) {
  CrashFileSystem system;
  ASSERT_OK(Save(system, 3));
  std::vector<std::string> paths;
  for (const auto& [path, content] : system.All()) paths.push_back(path);
  EXPECT_THAT(paths,
              UnorderedElementsAre("/checkpoints/", "/checkpoints/step-00000003/",
                                   "/checkpoints/step-00000003/0", "/checkpoints/step-00000003/1",
                                   "/checkpoints/step-00000003/manifest.json"));
  EXPECT_EQ(NewestWhole(system).value(), 3);
  EXPECT_THAT(Save(system, 3), StatusIs(absl::StatusCode::kAlreadyExists,
                                        "/checkpoints/step-00000003 is there already"));
  EXPECT_EQ(system.open_files(), 0);
}

TEST(CheckpointFolderTest, ListsNothingElse) {
  CrashFileSystem system;
  EXPECT_THAT(ListCheckpoints(system, kRoot).value(), IsEmpty());
  system.MakeFolder(kRoot, 0777);
  for (const char* name : {"step-00000010", "step-00000009", "step-123456789", "step-7",
                           "step--0000007", "step-0000000x", "step-", ".step-00000011.part-0",
                           ".trash-step-00000012", "step-00000013.old"}) {
    const std::string path = absl::StrCat(kRoot, "/", name);
    system.MakeFolder(path, 0777);
    MakeFile(system, path + "/manifest.json", "");
  }
  EXPECT_THAT(ListCheckpoints(system, kRoot).value(), ElementsAre(9, 10, 123456789));
}

TEST(CheckpointFolderTest, OnlyAManifestMakesAFolderACheckpoint) {
  device::SystemCalls& system = device::SystemCalls::Real();
  const std::string root = ::testing::TempDir() + "/manifests";
  SaveEmpty(system, root, 1);
  SaveEmpty(system, root, 2);
  MakeFile(system, root + "/step-00000003", "a file");
  for (const char* name : {"/step-00000004", "/step-00000005", "/step-00000006"}) {
    ASSERT_EQ(system.MakeFolder(root + name, 0777), 0);
  }
  ASSERT_EQ(system.MakeFolder(root + "/step-00000005/manifest.json", 0777), 0);
  ASSERT_EQ(
      symlink("../step-00000001/manifest.json", (root + "/step-00000006/manifest.json").c_str()),
      0);
  EXPECT_THAT(ListCheckpoints(system, root).value(), ElementsAre(1, 2));
  ASSERT_OK(RemoveOldCheckpoints(system, root, 2, 1));
  EXPECT_THAT(ListCheckpoints(system, root).value(), ElementsAre(2));
  // Its name is taken, although it is none.
  EXPECT_THAT(NewCheckpoint::Begin(system, root, 4, 0, "0").status(),
              StatusIs(absl::StatusCode::kAlreadyExists, root + "/step-00000004 is there already"));
}

// Who moved a checkpoint elsewhere, and left a link, keeps it.
TEST(CheckpointFolderTest, ALinkGoesWithoutWhatItLeadsTo) {
  device::SystemCalls& system = device::SystemCalls::Real();
  const std::string root = ::testing::TempDir() + "/links", elsewhere = root + "_elsewhere";
  for (const int64_t step : {1, 2}) SaveEmpty(system, root, step);
  ASSERT_EQ(system.Rename(root + "/step-00000001", elsewhere), 0);
  for (const char* name : {"/step-00000001", "/.step-00000007.part-x", "/.trash-step-00000009"}) {
    ASSERT_EQ(symlink(elsewhere.c_str(), (root + name).c_str()), 0);
  }
  EXPECT_THAT(ListCheckpoints(system, root).value(), ElementsAre(1, 2));
  ASSERT_OK(RemoveOldCheckpoints(system, root, 2, 1));
  std::vector<std::string> names;
  ASSERT_EQ(system.List(root, names), 0);
  EXPECT_THAT(names, ElementsAre("step-00000002"));
  EXPECT_TRUE(IsCheckpoint(system, elsewhere).value());
}

// A damaged one counts, so that it is named, and does not keep old ones from going.
TEST(CheckpointFolderTest, AManifestThatTheDiskHasLostIsThatOfACheckpoint) {
  for (const int error : {EIO, EUCLEAN, EBADMSG}) {
    CrashFileSystem system;
    for (const int64_t step : {1, 2, 3}) SaveEmpty(system, kRoot, step);
    system.set_fault([&](const std::string& call, const std::string& path) {
      return call == "open" && absl::StrContains(path, "step-00000002/manifest") ? error : 0;
    });
    EXPECT_THAT(ListCheckpoints(system, kRoot).value(), ElementsAre(1, 2, 3));
    EXPECT_THAT(RandomAccessFile::Open(system, absl::StrCat(kRoot, "/step-00000002/manifest.json"))
                    .status(),
                StatusIs(absl::StatusCode::kDataLoss));
    ASSERT_OK(RemoveOldCheckpoints(system, kRoot, 3, 1));
    EXPECT_THAT(ListCheckpoints(system, kRoot).value(), ElementsAre(3));
  }
}

TEST(CheckpointFolderTest, AManifestThatCannotBeReadIsAnError) {
  CrashFileSystem system;
  ASSERT_OK(Save(system, 1));
  for (const int error : {EACCES, EMFILE}) {
    system.set_fault(
        [&](const std::string& call, const std::string&) { return call == "open" ? error : 0; });
    EXPECT_THAT(std::string(ListCheckpoints(system, kRoot).status().message()),
                HasSubstr("/checkpoints/step-00000001/manifest.json"));
  }
}

TEST(CheckpointFolderTest, KeepsAsManyAsAsked) {
  CrashFileSystem system;
  for (const int64_t step : {1, 2, 3, 10}) SaveEmpty(system, kRoot, step);
  system.MakeFolder(absl::StrCat(kRoot, "/.step-00000004.part-1"), 0777);
  ASSERT_OK(RemoveOldCheckpoints(system, kRoot, 10, 2));
  EXPECT_THAT(ListCheckpoints(system, kRoot).value(), ElementsAre(3, 10));
  EXPECT_EQ(system.All().size(), 5u);
  EXPECT_THAT(RemoveOldCheckpoints(system, kRoot, 10, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// A run was given up at 300, and goes on from 100.
TEST(CheckpointFolderTest, NeverRemovesTheOneJustSaved) {
  CrashFileSystem system;
  for (const int64_t step : {100, 200, 300, 150}) SaveEmpty(system, kRoot, step);
  EXPECT_THAT(RemoveOldCheckpoints(system, kRoot, 151, 1),
              StatusIs(absl::StatusCode::kNotFound, "no checkpoint /checkpoints/step-00000151"));
  ASSERT_OK(RemoveOldCheckpoints(system, kRoot, 150, 2));
  EXPECT_THAT(ListCheckpoints(system, kRoot).value(), ElementsAre(150, 300));
  ASSERT_OK(RemoveOldCheckpoints(system, kRoot, 150, 1));
  EXPECT_THAT(ListCheckpoints(system, kRoot).value(), ElementsAre(150));
}

TEST(CheckpointFolderTest, TrashOfAnEarlierRemovalIsNotInTheWay) {
  CrashFileSystem system;
  SaveEmpty(system, kRoot, 1);
  SaveEmpty(system, kRoot, 2);
  system.MakeFolder("/checkpoints/.trash-step-00000001", 0777);
  MakeFile(system, "/checkpoints/.trash-step-00000001/0", "left");
  // Not ours.
  system.MakeFolder("/checkpoints/.trash-mine", 0777);
  system.MakeFolder("/checkpoints/.step-mine", 0777);
  ASSERT_OK(RemoveOldCheckpoints(system, kRoot, 2, 1));
  EXPECT_EQ(system.All().size(), 5u);
}

// A disk for all that is kept and one more, and a save that was cut short.
TEST(CheckpointFolderTest, ADamagedOneIsSetAside) {
  CrashFileSystem system;
  ASSERT_OK(Save(system, 1));
  for (int time = 0; time < 3; ++time) {
    SaveEmpty(system, kRoot, 2);
    ASSERT_OK(SetAside(system, kRoot, 2));
    EXPECT_EQ(*ListCheckpoints(system, kRoot), std::vector<int64_t>({1}));
  }
  for (const char* name : {"", "-2", "-3"}) {
    const std::string path = absl::StrCat(kRoot, "/damaged-step-00000002", name);
    EXPECT_EQ(system.All().count(path + "/manifest.json"), 1u) << name;
    // By any other name it is a checkpoint still, for those who name it.
    EXPECT_TRUE(IsCheckpoint(system, path).value());
  }
  EXPECT_FALSE(IsCheckpoint(system, kRoot).value());
  EXPECT_FALSE(IsCheckpoint(system, "/nowhere").value());
  EXPECT_THAT(SetAside(system, kRoot, 2),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("step-00000002")));
  // It outlives a crash, and is nobody's trash.
  const auto after = system.AfterCrash(Data::kNone, Names::kNone);
  EXPECT_EQ(*ListCheckpoints(*after, kRoot), std::vector<int64_t>({1}));
  ASSERT_OK(Save(system, 2));
  EXPECT_EQ(system.All().count(absl::StrCat(kRoot, "/damaged-step-00000002/")), 1u);
}

TEST(CheckpointFolderTest, SeveralBeginItAndOneCommitsIt) {
  CrashFileSystem system;
  const std::string token = "0123456789abcdef";
  // Left by an earlier save.
  ASSERT_EQ(system.MakeFolder(kRoot, 0777), 0);
  ASSERT_EQ(system.MakeFolder(PartPath(kRoot, 6, "fedcba9876543210"), 0777), 0);
  {
    auto first = NewCheckpoint::Begin(system, kRoot, 7, 0, token);
    ASSERT_OK(first);
    auto second = NewCheckpoint::Begin(system, kRoot, 7, 0, token);
    ASSERT_OK(second);
    EXPECT_EQ(first->path(), PartPath(kRoot, 7, token));
    EXPECT_EQ(second->path(), first->path());
    EXPECT_EQ(system.All().size(), 2u);
    MakeFile(system, second->path() + "/of_the_second", "x");
    first->Leave();
    { const NewCheckpoint left = *std::move(first); }
    ASSERT_OK(second->Commit("manifest"));
  }
  EXPECT_EQ(*ListCheckpoints(system, kRoot), std::vector<int64_t>({7}));
  EXPECT_EQ(system.All().count(absl::StrCat(kRoot, "/step-00000007/of_the_second")), 1u);
  EXPECT_THAT(NewCheckpoint::Begin(system, kRoot, 7, 0, token).status(),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST(CheckpointFolderTest, WhatWasWithdrawnIsNoMoreAndCanBeSavedAgain) {
  for (const std::string fails : {"", "rename", "sync"}) {
    SCOPED_TRACE(fails);
    CrashFileSystem system;
    {
      auto checkpoint = NewCheckpoint::Begin(system, kRoot, 1, 0, "0123456789abcdef");
      ASSERT_OK(checkpoint);
      EXPECT_OK(checkpoint->Withdraw());
      ASSERT_OK(checkpoint->Commit("manifest"));
      system.set_fault(
          [&](const std::string& call, const std::string&) { return call == fails ? EIO : 0; });
      EXPECT_EQ(checkpoint->Withdraw().ok(), fails.empty());
    }
    // A name that may still be on the disk is that of a whole one.
    const auto after = system.AfterCrash(Data::kNone, Names::kNone);
    EXPECT_EQ(IsCheckpoint(*after, CheckpointPath(kRoot, 1)).value(), !fails.empty());
    system.set_fault(nullptr);
    EXPECT_EQ(ListCheckpoints(system, kRoot)->empty(), fails != "rename");
    EXPECT_EQ(system.All().size(), fails.empty() ? 1u : 3u);
    if (fails == "rename") continue;
    SaveEmpty(system, kRoot, 1);
    EXPECT_EQ(system.All().size(), 3u);
  }
}

// A rename that finds nothing has been made before if what it renames is there, and only then.
TEST(CheckpointFolderTest, AnotherManifestIsNotTakenForTheOneThatWasRenamed) {
  for (const std::string there : {"manifest", "MANIFEST", "manifest of another one", ""}) {
    CrashFileSystem system;
    auto checkpoint = NewCheckpoint::Begin(system, kRoot, 1, 0, "0123456789abcdef");
    ASSERT_OK(checkpoint);
    bool was_asked = false;
    system.set_fault([&](const std::string& call, const std::string& path) {
      if (was_asked || call != "rename" || absl::EndsWith(path, ".part")) return 0;
      was_asked = true;
      system.MakeFolder(CheckpointPath(kRoot, 1), 0777);
      if (!there.empty()) MakeFile(system, CheckpointPath(kRoot, 1) + "/manifest.json", there);
      return ENOENT;
    });
    const absl::Status committed = checkpoint->Commit("manifest");
    if (there == "manifest") {
      EXPECT_OK(committed);
    } else {
      EXPECT_THAT(committed,
                  StatusIs(absl::StatusCode::kNotFound,
                           HasSubstr("cannot rename /checkpoints/.step-00000001.part-")));
    }
  }
}

TEST(CheckpointFolderTest, WhatIsLeftOfASaveTakesNoRoom) {
  CrashFileSystem system;
  system.MakeFolder(kRoot, 0777);
  system.MakeFolder("/checkpoints/.step-00000001.part-1", 0777);
  MakeFile(system, "/checkpoints/.step-00000001.part-1/0", "left");
  EXPECT_OK(NewCheckpoint::Begin(system, kRoot, 1, int64_t{4} << 30, "2"));
  EXPECT_EQ(system.All().size(), 1u);
  // One that cannot be removed does not stop the next save.
  system.MakeFolder("/checkpoints/.step-00000001.part-1", 0777);
  system.MakeFolder("/checkpoints/.step-00000001.part-1/folder", 0777);
  EXPECT_OK(NewCheckpoint::Begin(system, kRoot, 1, 4096, "2"));
}

// A process that ended before it could sync what it made, and a root with slashes at its end.
TEST(CheckpointFolderTest, TheRootOutlivesACrash) {
  for (const bool was_made : {false, true}) {
    for (const std::string root : {"/checkpoints", "/checkpoints/", "/checkpoints//"}) {
      CrashFileSystem system;
      if (was_made) system.MakeFolder(kRoot, 0777);
      SaveEmpty(system, root, 1);
      const auto after = system.AfterCrash(Data::kNone, Names::kNone);
      EXPECT_THAT(ListCheckpoints(*after, root).value(), ElementsAre(1)) << root << was_made;
    }
  }
}

TEST(CheckpointFolderTest, AFullDiskIsFoundBeforeAnythingIsWritten) {
  CrashFileSystem system;
  EXPECT_THAT(NewCheckpoint::Begin(system, kRoot, 1, (int64_t{4} << 30) + 1, "0").status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("4294967297 bytes are needed, 4294967296 are free")));
  EXPECT_EQ(system.All().size(), 1u);
}

// The power fails before each call of a second save. `lost`: the sync that does nothing, counted
// over both kinds; none if it is negative. Returns how many calls and syncs there were, and whether
// all crashes left whole checkpoints alone: the old one, or the new one, or, once it was said to be
// saved, the new one.
struct Crashes {
  int64_t calls = 0;
  int syncs = 0;
  bool all_whole = true;
  std::string first_not_whole = {};
};
Crashes CrashEverywhere(int lost) {
  Crashes crashes;
  for (int64_t at = 0;; ++at) {
    CrashFileSystem system;
    EXPECT_OK(Save(system, 1));
    int64_t call = 0;
    int syncs = 0;
    bool has_failed = false;
    system.set_fault([&](const std::string& name, const std::string&) {
      has_failed = has_failed || call++ == at;
      if (has_failed) return EIO;
      const bool is_sync = name == "sync" || name == "sync data";
      return is_sync && syncs++ == lost ? CrashFileSystem::kLost : 0;
    });
    bool is_saved = false;
    Save(system, 2, &is_saved).IgnoreError();
    for (const Data data : {Data::kNone, Data::kAll, Data::kEvery512, Data::kEvery4096}) {
      for (const Names names : {Names::kNone, Names::kAll, Names::kOuter, Names::kInner}) {
        const auto newest = NewestWhole(*system.AfterCrash(data, names));
        const bool is_whole = newest.ok() && (*newest == 2 || (*newest == 1 && !is_saved));
        if (!is_whole && crashes.all_whole) {
          crashes.first_not_whole =
              absl::StrCat("before call ", at, ", data ", static_cast<int>(data), ", names ",
                           static_cast<int>(names), ": ", newest.status().ToString());
        }
        crashes.all_whole = crashes.all_whole && is_whole;
      }
    }
    if (has_failed) continue;
    crashes.calls = at;
    crashes.syncs = syncs;
    return crashes;
  }
}

TEST(CheckpointFolderTest, ACrashLeavesTheOldOneOrTheNewOne) {
  const Crashes crashes = CrashEverywhere(/*lost=*/-1);
  EXPECT_TRUE(crashes.all_whole) << crashes.first_not_whole;
  EXPECT_GT(crashes.calls, 30);
  // The root's name, two files, the manifest, their names, the folder's name, that of the old one.
  EXPECT_EQ(crashes.syncs, 7);
  // The first save has synced the root's name.
  for (int lost = 1; lost < crashes.syncs; ++lost) {
    EXPECT_FALSE(CrashEverywhere(lost).all_whole) << "sync " << lost << " is not needed";
  }
}

// Killed at any call, and the power fails at any call of the next save, which finds what is left.
TEST(CheckpointFolderTest, ACrashAfterAKilledSaveLeavesAWholeOne) {
  bool was_killed = true;
  for (int64_t kill = 0; was_killed; ++kill) {
    bool has_failed = true;
    for (int64_t at = 0; has_failed; ++at) {
      CrashFileSystem system;
      ASSERT_OK(Save(system, 1));
      const auto fail_from = [&](int64_t first, bool& failed) {
        failed = false;
        system.set_fault(
            [&failed, first, call = int64_t{0}](const std::string&, const std::string&) mutable {
              failed = failed || call++ == first;
              return failed ? EIO : 0;
            });
      };
      bool is_2_saved = false, is_3_saved = false;
      fail_from(kill, was_killed);
      Save(system, 2, &is_2_saved).IgnoreError();
      fail_from(at, has_failed);
      Save(system, 3, &is_3_saved).IgnoreError();
      for (const Names names : {Names::kNone, Names::kAll, Names::kOuter, Names::kInner}) {
        const auto newest = NewestWhole(*system.AfterCrash(Data::kNone, names));
        ASSERT_OK(newest) << kill << " " << at;
        EXPECT_GE(*newest, is_3_saved ? 3 : is_2_saved ? 2 : 1) << kill << " " << at;
      }
    }
  }
}

// No room, no luck: the old one is there, and nothing is left of the new one.
TEST(CheckpointFolderTest, AnErrorOfEachCallLeavesTheOldOne) {
  for (const int error : {EIO, ENOSPC}) {
    for (int64_t at = 0;; ++at) {
      CrashFileSystem system;
      ASSERT_OK(Save(system, 1));
      const auto before = system.All();
      std::string failed;
      bool was_renamed = false;
      system.set_fault([&, left = at](const std::string& call, const std::string& path) mutable {
        if (left-- != 0) {
          was_renamed =
              was_renamed || (call == "rename" && path.find(".part-") == path.size() - 22);
          return 0;
        }
        failed = call;
        return error;
      });
      const absl::Status saved = Save(system, 2);
      EXPECT_EQ(system.open_files(), 0);
      if (failed.empty()) {
        EXPECT_OK(saved);
        break;
      }
      system.set_fault(nullptr);
      EXPECT_TRUE(was_renamed || saved.ok() || system.All() == before) << failed << " " << at;
      ASSERT_OK(NewestWhole(system)) << failed;
      // The next one goes through.
      ASSERT_OK(Save(system, 4));
      EXPECT_EQ(NewestWhole(system).value(), 4);
      EXPECT_EQ(system.All().size(), 5u) << failed;
    }
  }
}

// As some file systems without a limit say it.
class Unlimited final : public testing::OtherSystemCalls {
 public:
  using OtherSystemCalls::OtherSystemCalls;

  int SpaceOf(const std::string& path, struct statvfs& space) override {
    const int result = OtherSystemCalls::SpaceOf(path, space);
    space.f_bavail = ~fsblkcnt_t{0};
    return result;
  }
};

TEST(CheckpointFolderTest, SavesWhereThereIsNoLimit) {
  CrashFileSystem disk;
  Unlimited system(&disk);
  ASSERT_OK(Save(system, 1));
  EXPECT_EQ(NewestWhole(disk).value(), 1);
}

}  // namespace
}  // namespace brigade::checkpoint
