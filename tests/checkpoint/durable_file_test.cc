#include "brigade/checkpoint/durable_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/read_all.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::checkpoint::testing::CrashFileSystem;
using ::brigade::checkpoint::testing::ReadAll;
using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Content() {
  std::string content;
  for (int i = 0; content.size() < 10000; ++i) absl::StrAppend(&content, i, " ");
  return content;
}

// A file of two writes, the later bytes first, and its folder.
absl::Status WriteTwoPieces(device::SystemCalls& system, const std::string& folder) {
  const std::string content = Content();
  auto file = WritableFile::Create(system, folder + "/file", static_cast<int64_t>(content.size()));
  if (!file.ok()) return file.status();
  const absl::string_view view = content;
  absl::Status status = file->Write(view.substr(5000), 5000);
  if (status.ok()) status = file->Write(view.substr(0, 5000), 0);
  if (status.ok()) status = file->Finish();
  if (status.ok()) status = SyncFolder(system, folder);
  return status;
}

TEST(DurableFileTest, WritesAndReadsARealFile) {
  device::SystemCalls& system = device::SystemCalls::Real();
  const std::string folder = ::testing::TempDir() + "/real";
  ASSERT_EQ(system.MakeFolder(folder, 0700), 0);
  ASSERT_OK(WriteTwoPieces(system, folder));
  EXPECT_EQ(ReadAll(system, folder + "/file").value(), Content());
  EXPECT_THAT(WritableFile::Create(system, folder + "/file", 1).status(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(folder + "/file")));
  ASSERT_EQ(symlink("file", (folder + "/link").c_str()), 0);
  EXPECT_THAT(RandomAccessFile::Open(system, folder + "/link").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, folder + "/link is no regular file"));
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(RandomAccessFile::Open(system, folder + "/pipe").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, folder + "/pipe is no regular file"));
  EXPECT_THAT(RandomAccessFile::Open(system, folder + "/none").status(),
              StatusIs(absl::StatusCode::kNotFound));
  const auto file = RandomAccessFile::Open(system, folder + "/file").value();
  char byte = 0;
  EXPECT_THAT(file.Read(&byte, 1, file.size()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("it ends at byte ")));
  ASSERT_EQ(system.MakeFolder(folder + "/to", 0700), 0);
  EXPECT_EQ(system.RenameToNew(folder + "/file", folder + "/link"), -1);
  EXPECT_EQ(errno, EEXIST);
  ASSERT_EQ(system.RenameToNew(folder + "/file", folder + "/new"), 0);
  ASSERT_EQ(system.RemoveFolder(folder + "/to"), 0);
  EXPECT_OK(RemoveFolderWithFiles(system, folder));
  EXPECT_NE(access(folder.c_str(), F_OK), 0);
}

// Whatever the disk has of what was not synced. Each sync that is left out is missed.
TEST(DurableFileTest, WhatIsSyncedOutlivesACrash) {
  using Data = CrashFileSystem::Data;
  using Names = CrashFileSystem::Names;
  for (const std::string left_out : {"", "sync data", "sync"}) {
    CrashFileSystem system;
    ASSERT_EQ(system.MakeFolder("/f", 0700), 0);
    ASSERT_OK(SyncFolder(system, "/"));
    system.set_fault([&](const std::string& call, const std::string&) {
      return call == left_out ? CrashFileSystem::kLost : 0;
    });
    ASSERT_OK(WriteTwoPieces(system, "/f"));
    bool is_always_there = true;
    for (const Data data : {Data::kNone, Data::kAll, Data::kEvery512, Data::kEvery4096}) {
      for (const Names names : {Names::kNone, Names::kAll}) {
        const auto content = ReadAll(*system.AfterCrash(data, names), "/f/file");
        is_always_there = is_always_there && content.ok() && *content == Content();
      }
    }
    EXPECT_EQ(is_always_there, left_out.empty()) << left_out;
  }
}

// Then what was written is lost; a call that the system refuses is something else.
TEST(DurableFileTest, WhatTheDiskCannotReadIsDataLoss) {
  for (const auto& [error, code] : {std::pair(EIO, absl::StatusCode::kDataLoss),
                                    std::pair(EACCES, absl::StatusCode::kPermissionDenied)}) {
    CrashFileSystem system;
    ASSERT_EQ(system.MakeFolder("/f", 0700), 0);
    ASSERT_OK(WriteTwoPieces(system, "/f"));
    auto file = RandomAccessFile::Open(system, system.All().rbegin()->first);
    ASSERT_OK(file);
    system.set_fault([error = error](const std::string& call, const std::string&) {
      return call == "read" ? error : 0;
    });
    char byte = 0;
    EXPECT_THAT(file->Read(&byte, 1, 0),
                StatusIs(code, HasSubstr("cannot read " + system.All().rbegin()->first)));
  }
}

// An error at any call is an error of the whole, and leaves nothing open.
TEST(DurableFileTest, AnErrorOfEachCallIsTold) {
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    for (int64_t at = 0;; ++at) {
      CrashFileSystem system;
      ASSERT_EQ(system.MakeFolder("/f", 0700), 0);
      std::string failed, path;
      system.set_fault([&, left = at](const std::string& call, const std::string& of) mutable {
        if (left-- != 0) return 0;
        failed = call;
        path = of;
        return error;
      });
      const absl::Status status = WriteTwoPieces(system, "/f");
      EXPECT_EQ(system.open_files(), 0);
      if (failed.empty()) {
        EXPECT_OK(status);
        EXPECT_GT(at, 10);
        break;
      }
      // A hint, and the descriptor of a folder.
      if (failed == "begin to write" || (failed == "close" && path == "/f")) continue;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("cannot "), HasSubstr("/f"), HasSubstr(std::strerror(error))))
          << failed;
    }
  }
}

TEST(DurableFileTest, InterruptedAndShortCallsGoOn) {
  for (const int fault : {EINTR, CrashFileSystem::kShort}) {
    CrashFileSystem system;
    ASSERT_EQ(system.MakeFolder("/f", 0700), 0);
    // Every other call that is no sync.
    system.set_fault([&, count = 0](const std::string& call, const std::string&) mutable {
      return call.find("sync") == std::string::npos && ++count % 2 == 0 ? fault : 0;
    });
    ASSERT_OK(WriteTwoPieces(system, "/f"));
    EXPECT_EQ(ReadAll(system, "/f/file").value(), Content());
  }
  CrashFileSystem system;
  ASSERT_EQ(system.MakeFolder("/f", 0700), 0);
  // Where files cannot be allocated, they are written all the same.
  system.set_fault([](const std::string& call, const std::string&) {
    return call == "allocate" ? EOPNOTSUPP : 0;
  });
  ASSERT_OK(WriteTwoPieces(system, "/f"));
  EXPECT_EQ(system.All()["/f/file"], Content());
}

TEST(DurableFileTest, AFailedSyncIsNotRepeated) {
  for (const std::string sync : {"sync data", "sync"}) {
    for (const int error : {EIO, EINTR}) {
      CrashFileSystem system;
      ASSERT_EQ(system.MakeFolder("/f", 0700), 0);
      int syncs = 0;
      system.set_fault([&](const std::string& call, const std::string&) {
        return call == sync && ++syncs == 1 ? error : 0;
      });
      EXPECT_THAT(std::string(WriteTwoPieces(system, "/f").message()),
                  HasSubstr(std::strerror(error)));
      EXPECT_EQ(syncs, 1) << sync;
    }
  }
}

TEST(DurableFileTest, AFolderThatIsNotSyncedIsOkWhereItNeedsNone) {
  const auto status = [](const std::string& failing, int error) {
    CrashFileSystem system;
    system.set_fault(
        [&](const std::string& call, const std::string&) { return call == failing ? error : 0; });
    const absl::Status synced = SyncFolder(system, "/");
    EXPECT_EQ(system.open_files(), 0);
    return synced;
  };
  EXPECT_OK(status("open", EACCES));
  EXPECT_OK(status("sync", EINVAL));
  EXPECT_THAT(status("open", EINVAL), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(status("sync", EACCES), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST(DurableFileTest, RoomDoesNotCountAsContent) {
  device::SystemCalls& system = device::SystemCalls::Real();
  const std::string path = ::testing::TempDir() + "/room";
  auto file = WritableFile::Create(system, path, 100000).value();
  ASSERT_OK(file.Write("abc", 0));
  ASSERT_OK(file.Finish());
  EXPECT_EQ(ReadAll(system, path).value(), "abc");
}

TEST(DurableFileTest, MessagesHoldPathsThatATerminalDoesNotObey) {
  CrashFileSystem system;
  const std::string path = "/\x1b[2J" + std::string(1000, 'a');
  const std::string message(RandomAccessFile::Open(system, path).status().message());
  EXPECT_THAT(message, HasSubstr("cannot open /\\x1b[2Jaaa"));
  EXPECT_LT(message.size(), 500u);
}

}  // namespace
}  // namespace brigade::checkpoint
