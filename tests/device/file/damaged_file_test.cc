// Files that others cut, remove, change or use, and that the system lets grow no further.

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "brigade/device/file/file_store.h"
#include "brigade/tests/checkpoint/other_system_calls.h"
#include "brigade/tests/device/file/faulty_store.h"
#include "gmock/gmock.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DamagedFileTest : public FaultyStoreTest {};
BRIGADE_FILE_STORE_TESTS(DamagedFileTest);

TEST_P(DamagedFileTest, AFlippedBitIsDataLoss) {
  options_.checksums = true;
  options_.crash_safety = CrashSafety::kProcess;
  for (const int64_t at : {int64_t{0}, kBytes / 2, kBytes - 1}) {
    std::filesystem::remove(path());
    auto store = Create({5, kBytes});
    ASSERT_OK(WriteNow(*store, 0, Bytes(5, 3)));
    ASSERT_OK(WriteNow(*store, 1, first_));
    ASSERT_OK(CommitNow(*store));
    ASSERT_OK(ReadNow(*store, 1));
    // Behind two tables and the two slots of chunk 0.
    constexpr int64_t kSlot = 4 * 4096;
    const auto flip = [&](int64_t byte) {
      std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(byte);
      const auto changed = static_cast<char>(file.get() ^ 0x10);
      file.seekp(byte);
      file.put(changed);
    };
    flip(kSlot + at);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(ReadNow(*store, 1),
                  StatusIs(absl::StatusCode::kDataLoss,
                           AllOf(HasSubstr("chunk 1 of " + path() + " is damaged"),
                                 HasSubstr(absl::StrCat(kBytes, " bytes at byte ", kSlot)))));
      ASSERT_OK(stream_->Reset());
      EXPECT_EQ(ReadNow(*store, 0).value(), Bytes(5, 3));
      // Also for another process.
      store = nullptr;
      store = FileStore::Open(options_, "state", {5, kBytes}).value();
    }
    flip(kSlot + at);
    EXPECT_EQ(ReadNow(*store, 1).value(), first_);
  }
}

TEST_P(DamagedFileTest, AFileThatWasCutIsDataLoss) {
  options_.crash_safety = CrashSafety::kProcess;
  const auto store = CreateFaulty();
  const auto size = static_cast<off_t>(std::filesystem::file_size(path()));
  for (const off_t left : {off_t{0}, off_t{8192 + 5000}, size - 1}) {
    ASSERT_EQ(truncate(path().c_str(), left), 0);
    const auto is_cut =
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr(path()), HasSubstr("was cut"), HasSubstr(absl::StrCat(left))));
    EXPECT_THAT(ReadNow(*store, 0), is_cut);
    ASSERT_OK(stream_->Reset());
    EXPECT_THAT(WriteNow(*store, 0, second_), is_cut);
    ASSERT_OK(stream_->Reset());
    EXPECT_THAT(CommitNow(*store), is_cut);
    ASSERT_OK(stream_->Reset());
  }
  // In the middle of an operation.
  ASSERT_EQ(truncate(path().c_str(), size), 0);
  disk_.Set([&](const FileRequest& request, int) {
    if (request.offset > 8192 + 40'000) truncate(path().c_str(), 8192 + 40'000);
    return Fault();
  });
  EXPECT_THAT(ReadNow(*store, 0),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("cannot read chunk 0"),
                                                          HasSubstr("the file ends at byte"))));
}

TEST_P(DamagedFileTest, AFileThatWasRemovedIsDataLoss) {
  options_.crash_safety = CrashSafety::kProcess;
  const auto store = CreateFaulty();
  ASSERT_EQ(unlink(path().c_str()), 0);
  const auto is_gone =
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path()), HasSubstr("was removed")));
  EXPECT_THAT(ReadNow(*store, 0), is_gone);
  ASSERT_OK(stream_->Reset());
  EXPECT_THAT(WriteNow(*store, 0, second_), is_gone);
  ASSERT_OK(stream_->Reset());
  EXPECT_THAT(CommitNow(*store), is_gone);
}

// No handler for SIGXFSZ stands here: the signal would end the process.
TEST_P(DamagedFileTest, ALimitOfTheFileSizeIsAnError) {
  options_.crash_safety = CrashSafety::kProcess;
  const auto store = CreateFaulty();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {8192 + 50'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status written = WriteNow(*store, 0, second_);
  const auto created = FileStore::Create(options_, "other", {kBytes});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(written, StatusIs(absl::StatusCode::kOutOfRange,
                                AllOf(HasSubstr("cannot write chunk 0 of " + path()),
                                      HasSubstr("File too large"))));
  EXPECT_THAT(created, StatusIs(absl::StatusCode::kOutOfRange,
                                AllOf(HasSubstr("cannot take"), HasSubstr("File too large"))));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/other"));
  ExpectGoesOn(*store);
}

TEST_P(DamagedFileTest, ATableBeyondTheLimitOfTheFileSizeIsAnError) {
  options_.crash_safety = CrashSafety::kProcess;
  const auto store = CreateFaulty();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  // Commit 2 goes to the first copy, which ends there, commit 3 to the second one.
  const absl::Status second = CommitNow(*store), third = CommitNow(*store);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_OK(second);
  EXPECT_THAT(third, StatusIs(absl::StatusCode::kOutOfRange,
                              AllOf(HasSubstr("commit 3"), HasSubstr("File too large"))));
}

// The system's own, but for what a test takes over.
class SomeSystemCalls final : public checkpoint::testing::OtherSystemCalls {
 public:
  SomeSystemCalls() : OtherSystemCalls(&SystemCalls::Real()) {}

  int SetDirect(int fd, bool direct) override {
    errno = direct_error;
    return direct_error != 0 ? -1 : OtherSystemCalls::SetDirect(fd, direct);
  }
  int Allocate(int fd, off_t bytes) override {
    if (at_allocate != nullptr) at_allocate();
    errno = allocate_error;
    return allocate_error != 0 ? -1 : OtherSystemCalls::Allocate(fd, bytes);
  }
  ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) override {
    errno = write_error;
    return write_error != 0 ? -1 : OtherSystemCalls::WriteAt(fd, from, bytes, offset);
  }
  int SyncData(int fd) override {
    ++syncs;
    errno = sync_error;
    return sync_error != 0 ? -1 : OtherSystemCalls::SyncData(fd);
  }

  std::atomic<int> direct_error{0}, allocate_error{0}, write_error{0}, sync_error{0}, syncs{0};
  std::function<void()> at_allocate;
};

// A process that is killed while it takes room, which may last, leaves nothing.
TEST_P(DamagedFileTest, AFileForOneProcessHasNoNameWhenItsRoomIsTaken) {
  for (const CrashSafety safety : {CrashSafety::kNone, CrashSafety::kProcess}) {
    SomeSystemCalls system;
    bool is_empty = false;
    system.at_allocate = [&] { is_empty = std::filesystem::is_empty(directory_.path()); };
    options_.crash_safety = safety;
    EXPECT_OK(FileStore::Create(options_, "state", {kBytes}, {Engine(), &system}));
    EXPECT_EQ(is_empty, safety == CrashSafety::kNone);
  }
}

TEST_P(DamagedFileTest, WithoutODirectItSaysWhyItIsBuffered) {
  SomeSystemCalls system;
  system.direct_error = EINVAL;
  options_.direct = true;
  const auto store = FileStore::Create(options_, "state", {kBytes}, {Engine(), &system}).value();
  EXPECT_FALSE(store->direct());
  EXPECT_THAT(store->description(), HasSubstr("buffered, because O_DIRECT: Invalid argument"));
  ASSERT_OK(WriteNow(*store, 0, first_));
  ASSERT_OK(CommitNow(*store));
  EXPECT_EQ(ReadNow(*store, 0).value(), first_);
}

TEST_P(DamagedFileTest, AFullDiskIsSaidAtCreate) {
  SomeSystemCalls system;
  for (const int error : {ENOSPC, EDQUOT}) {
    system.allocate_error = error;
    EXPECT_THAT(FileStore::Create(options_, "state", {kBytes, 5}, {Engine(), &system}),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr(absl::StrCat("cannot take ", FileStoreBytes({kBytes, 5}),
                                                      " bytes for two slots of each of 2 chunks, "
                                                      "which have 100005 bytes, in " +
                                                          path())),
                               HasSubstr(" are free"))));
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  }
  // More than any disk has, in truth.
  EXPECT_THAT(FileStore::Create(options_, "state", {int64_t{1} << 44}).status().ok(), false);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_P(DamagedFileTest, WithoutFallocateTheRoomIsTakenByZeros) {
  SomeSystemCalls system;
  system.allocate_error = EOPNOTSUPP;
  options_.crash_safety = CrashSafety::kProcess;
  constexpr int64_t kLarge = 3 << 20;
  const auto store = FileStore::Create(options_, "state", {kLarge}, {Engine(), &system}).value();
  struct stat status = {};
  ASSERT_EQ(stat(path().c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, FileStoreBytes({kLarge}));
  const auto bytes = Bytes(kLarge, 1);
  ASSERT_OK(WriteNow(*store, 0, bytes));
  ASSERT_OK(CommitNow(*store));
  EXPECT_EQ(ReadNow(*store, 0).value(), bytes);

  system.write_error = ENOSPC;
  EXPECT_THAT(FileStore::Create(options_, "other", {kBytes}, {Engine(), &system}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("cannot take")));
}

TEST_P(DamagedFileTest, ATableThatCannotBeWrittenEndsTheWrites) {
  for (const bool sync : {false, true}) {
    std::filesystem::remove(path());
    SomeSystemCalls system;
    options_.crash_safety = sync ? CrashSafety::kMachine : CrashSafety::kProcess;
    auto store = FileStore::Create(options_, "state", {kBytes}, {Engine(), &system}).value();
    ASSERT_OK(WriteNow(*store, 0, first_));
    ASSERT_OK(CommitNow(*store));
    ASSERT_OK(WriteNow(*store, 0, second_));
    if (sync) {
      // The first one is before the table: the step fails, and the next may work.
      system.sync_error = EIO;
      EXPECT_THAT(CommitNow(*store), StatusIs(absl::StatusCode::kUnknown, HasSubstr("sync")));
      system.sync_error = 0;
      ASSERT_OK(stream_->Reset());
    }
    system.write_error = EIO;
    EXPECT_THAT(CommitNow(*store), StatusIs(absl::StatusCode::kUnknown,
                                            AllOf(HasSubstr(path()), HasSubstr("commit 2"))));
    system.write_error = 0;
    ASSERT_OK(stream_->Reset());
    EXPECT_EQ(ReadNow(*store, 0).value(), first_);
    EXPECT_THAT(WriteNow(*store, 0, second_),
                StatusIs(absl::StatusCode::kUnknown, HasSubstr("takes no more writes")));
    ASSERT_OK(stream_->Reset());
    EXPECT_THAT(CommitNow(*store),
                StatusIs(absl::StatusCode::kUnknown, HasSubstr("takes no more writes")));
    ASSERT_OK(stream_->Reset());
    store = nullptr;
    store = FileStore::Open(options_, "state", {kBytes}).value();
    EXPECT_EQ(store->commits(), 1);
    EXPECT_EQ(ReadNow(*store, 0).value(), first_);
  }
}

TEST_P(DamagedFileTest, OneStoreAtATimeUsesAFile) {
  options_.crash_safety = CrashSafety::kProcess;
  auto store = Create({kBytes});
  EXPECT_THAT(FileStore::Open(options_, "state", {kBytes}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in use")));
  // One that ends meanwhile is waited for.
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    store = nullptr;
  });
  EXPECT_OK(FileStore::Open(options_, "state", {kBytes}));
  ends.join();
}

}  // namespace
}  // namespace brigade::device
