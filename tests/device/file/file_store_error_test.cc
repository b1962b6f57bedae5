// Disks that fail, lie, are full or slow, and files that others cut, remove or change.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "brigade/device/file/file_store.h"
#include "brigade/tests/checkpoint/other_system_calls.h"
#include "brigade/tests/device/file/faulty_engine.h"
#include "brigade/tests/device/file/store_fixture.h"
#include "gmock/gmock.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 100'000;

class FileStoreErrorTest : public FileStoreTest {
 protected:
  // A store of one chunk, committed, over a disk whose faults the test sets.
  std::unique_ptr<FileStore> CreateFaulty() {
    auto store = FileStore::Create(options_, "state", {kBytes},
                                   {std::make_unique<FaultyEngine>(Engine(), disk_)});
    EXPECT_OK(store);
    EXPECT_OK(WriteNow(**store, 0, first_));
    EXPECT_OK(CommitNow(**store));
    return *std::move(store);
  }

  // What is committed is there, and the store goes on.
  void ExpectGoesOn(FileStore& store) {
    disk_.Set(nullptr);
    ASSERT_OK(stream_->Reset());
    EXPECT_EQ(ReadNow(store, 0).value(), first_);
    EXPECT_OK(store.Abandon(*stream_));
    EXPECT_OK(WriteNow(store, 0, second_));
    EXPECT_OK(CommitNow(store));
    EXPECT_EQ(ReadNow(store, 0).value(), second_);
  }

  std::string path() const { return directory_.path() + "/state"; }

  Disk disk_;
  const std::vector<char> first_ = Bytes(kBytes, 1), second_ = Bytes(kBytes, 2);
};
BRIGADE_FILE_STORE_TESTS(FileStoreErrorTest);

TEST_P(FileStoreErrorTest, ShortTransfersAreGoneOnWith) {
  const auto store = CreateFaulty();
  for (const int64_t most : {4096, 8192, 512, 12288}) {
    disk_.Set([&](const FileRequest&, int) { return Fault{.most_bytes = most}; });
    ASSERT_OK(WriteNow(*store, 0, second_)) << most;
    ASSERT_OK(CommitNow(*store));
    disk_.Set(nullptr);
    ASSERT_EQ(ReadNow(*store, 0).value(), second_) << most;
    disk_.Set([&](const FileRequest&, int) { return Fault{.most_bytes = most}; });
    ASSERT_EQ(ReadNow(*store, 0).value(), second_) << most;
  }
}

TEST_P(FileStoreErrorTest, InterruptedTransfersAreMadeAgain) {
  const auto store = CreateFaulty();
  for (const int error : {EINTR, EAGAIN}) {
    disk_.Set([&](const FileRequest&, int number) {
      return Fault{.error = number % 3 == 0 ? 0 : error};
    });
    ASSERT_OK(WriteNow(*store, 0, second_));
    ASSERT_OK(CommitNow(*store));
    ASSERT_EQ(ReadNow(*store, 0).value(), second_);
  }
  // But not for ever.
  disk_.Set([&](const FileRequest&, int) { return Fault{.error = EAGAIN}; });
  EXPECT_THAT(WriteNow(*store, 0, second_), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(FileStoreErrorTest, AnErrorFailsTheStreamAndNamesTheBlock) {
  const auto store = CreateFaulty();
  // The third block, after half of it was done.
  const auto fail = [](int error) {
    return [=](const FileRequest& request, int number) {
      if (request.bytes == 8192) return Fault{.error = error};
      return number == 3 ? Fault{.most_bytes = 8192} : Fault();
    };
  };
  const struct {
    int error;
    absl::StatusCode code;
    const char* text;
  } kErrors[] = {
      {EIO, absl::StatusCode::kDataLoss, "Input/output error"},
      {ENOSPC, absl::StatusCode::kResourceExhausted, "No space left on device"},
      {EFBIG, absl::StatusCode::kOutOfRange, "File too large"},
      {EDQUOT, absl::StatusCode::kResourceExhausted, "Disk quota exceeded"},
      {EBADF, absl::StatusCode::kFailedPrecondition, "Bad file descriptor"},
  };
  for (const auto& [error, code, text] : kErrors) {
    disk_.Set(fail(error));
    const absl::Status failed = WriteNow(*store, 0, second_);
    EXPECT_THAT(failed, StatusIs(code, AllOf(HasSubstr("\"file_write\" on stream \"files\""),
                                             HasSubstr("cannot write chunk 0 of " + path()),
                                             HasSubstr("16384 bytes at byte "),
                                             HasSubstr(", 8192 of them done: "), HasSubstr(text))));
    EXPECT_EQ(disk_.in_flight(), 0);
    // What failed is not committed, even if the stream is told to go on.
    disk_.Set(nullptr);
    ASSERT_OK(stream_->Reset());
    ASSERT_OK(CommitNow(*store));
    EXPECT_EQ(ReadNow(*store, 0).value(), first_);

    disk_.Set(fail(error));
    EXPECT_THAT(ReadNow(*store, 0),
                StatusIs(code, AllOf(HasSubstr("cannot read chunk 0 of " + path()),
                                     HasSubstr(", 8192 of them done: "), HasSubstr(text))));
    disk_.Set(nullptr);
    ASSERT_OK(stream_->Reset());
  }
  ExpectGoesOn(*store);
}

TEST_P(FileStoreErrorTest, AWriteThatFailsTakesTheOneBeforeItBack) {
  const auto store = CreateFaulty();
  ASSERT_OK(WriteNow(*store, 0, second_));
  disk_.Set([](const FileRequest&, int number) { return Fault{.error = number == 3 ? EIO : 0}; });
  EXPECT_THAT(WriteNow(*store, 0, Bytes(kBytes, 3)), StatusIs(absl::StatusCode::kDataLoss));
  disk_.Set(nullptr);
  ASSERT_OK(stream_->Reset());
  ASSERT_OK(CommitNow(*store));
  EXPECT_EQ(ReadNow(*store, 0).value(), first_);
}

TEST_P(FileStoreErrorTest, AStreamThatWaitsForAFailedWriteDoesNotCommit) {
  const auto store = CreateFaulty();
  auto other = context_->CreateStream("commits").value();
  auto event = context_->CreateEvent("written").value();
  disk_.Set([](const FileRequest&, int) { return Fault{.error = EIO}; });
  ASSERT_OK(store->Write(*stream_, 0, second_));
  ASSERT_OK(stream_->Record(*event));
  ASSERT_OK(other->Wait(*event));
  ASSERT_OK(store->Commit(*other));
  EXPECT_THAT(other->Synchronize(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("through event \"written\"")));
  EXPECT_EQ(store->commits(), 1);
  ExpectGoesOn(*store);
}

TEST_P(FileStoreErrorTest, AnswersThatCannotBeAreErrors) {
  const auto store = CreateFaulty();
  for (const int64_t says : {int64_t{0}, int64_t{1} << 20}) {
    disk_.Set([&](const FileRequest&, int) { return Fault{.says = says}; });
    EXPECT_THAT(WriteNow(*store, 0, second_),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr(absl::StrCat("says that it has done ", says))));
    ASSERT_OK(stream_->Reset());
    EXPECT_THAT(ReadNow(*store, 0), StatusIs(absl::StatusCode::kDataLoss));
    ExpectGoesOn(*store);
    ASSERT_OK(WriteNow(*store, 0, first_));
    ASSERT_OK(CommitNow(*store));
  }
}

TEST_P(FileStoreErrorTest, KeepsAsManyBlocksInFlightAsItIsToldTo) {
  for (const int depth : {1, 3, 64}) {
    options_.queue_depth = depth;
    Disk disk;
    const auto store = FileStore::Create(options_, "state", {16384 * 32},
                                         {std::make_unique<FaultyEngine>(Engine(), disk)})
                           .value();
    ASSERT_OK(WriteNow(*store, 0, Bytes(16384 * 32, 1)));
    EXPECT_EQ(disk.requests() >= 32, true);
    EXPECT_EQ(disk.most_in_flight() >= std::min(depth, 32), true) << disk.most_in_flight();
    EXPECT_LE(disk.most_in_flight(), depth);
  }
}

TEST_P(FileStoreErrorTest, ASlowDiskMakesNoHostWait) {
  const auto store = CreateFaulty();
  disk_.Set([](const FileRequest&, int) { return Fault{.delay = std::chrono::milliseconds(5)}; });
  const int64_t waits = context_->host_waits();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<char> memory(kBytes);
  for (int step = 0; step < 5; ++step) {
    ASSERT_OK(store->Read(*stream_, 0, absl::MakeSpan(memory)));
    ASSERT_OK(store->Write(*stream_, 0, memory));
    ASSERT_OK(store->Commit(*stream_));
  }
  const auto enqueued = std::chrono::steady_clock::now();
  EXPECT_EQ(context_->host_waits(), waits);
  EXPECT_EQ(store->commits() < 6, true);
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(store->commits(), 6);
  // 10 transfers of 7 blocks.
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(350));
  EXPECT_LT(enqueued - begin, std::chrono::milliseconds(200));
}

TEST_P(FileStoreErrorTest, MayEndWithTransfersInFlight) {
  std::vector<char> memory(kBytes);
  {
    auto store = CreateFaulty();
    disk_.Set([](const FileRequest&, int) { return Fault{.delay = std::chrono::milliseconds(1)}; });
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(store->Write(*stream_, 0, second_));
      ASSERT_OK(store->Commit(*stream_));
      ASSERT_OK(store->Read(*stream_, 0, absl::MakeSpan(memory)));
    }
  }
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(memory, second_);
  EXPECT_EQ(disk_.in_flight(), 0);
}

TEST_P(FileStoreErrorTest, AFlippedBitIsDataLoss) {
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

TEST_P(FileStoreErrorTest, AFileThatWasCutIsDataLoss) {
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

TEST_P(FileStoreErrorTest, AFileThatWasRemovedIsDataLoss) {
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
TEST_P(FileStoreErrorTest, ALimitOfTheFileSizeIsAnError) {
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

// The system's own, but for what a test takes over.
class SomeSystemCalls final : public checkpoint::testing::OtherSystemCalls {
 public:
  SomeSystemCalls() : OtherSystemCalls(&SystemCalls::Real()) {}

  int Allocate(int fd, off_t bytes) override {
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

  std::atomic<int> allocate_error{0}, write_error{0}, sync_error{0}, syncs{0};
};

TEST_P(FileStoreErrorTest, AFullDiskIsSaidAtCreate) {
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

TEST_P(FileStoreErrorTest, WithoutFallocateTheRoomIsTakenByZeros) {
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

TEST_P(FileStoreErrorTest, ATableThatCannotBeWrittenEndsTheWrites) {
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

TEST_P(FileStoreErrorTest, OneStoreAtATimeUsesAFile) {
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
