// Disks that fail, lie or are slow: what an engine reports.

#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "brigade/device/file/file_store.h"
#include "brigade/tests/device/file/faulty_store.h"
#include "gmock/gmock.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FileStoreErrorTest : public FaultyStoreTest {};
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
    int64_t most_bytes = 0;
    disk.Set([&](const FileRequest& request, int) {
      most_bytes = std::max(most_bytes, request.bytes);
      return Fault();
    });
    ASSERT_OK(WriteNow(*store, 0, Bytes(16384 * 32, 1)));
    EXPECT_EQ(disk.requests(), 32);
    EXPECT_EQ(disk.most_in_flight(), std::min(depth, 32));
    EXPECT_EQ(most_bytes, 16384);
    // From an address that O_DIRECT does not take.
    ASSERT_OK(store->Write(*stream_, 0, Memory(16384 * 32 + 1).subspan(1)));
    ASSERT_OK(stream_->Synchronize());
    EXPECT_EQ(disk.requests(), 64);
    EXPECT_EQ(most_bytes, 16384);
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
  EXPECT_LT(store->commits(), 6);
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(store->commits(), 6);
  // 10 transfers of 7 blocks.
  const auto ended = std::chrono::steady_clock::now();
  EXPECT_GE(ended - begin, std::chrono::milliseconds(350));
  EXPECT_LT(enqueued - begin, (ended - begin) / 2);
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

}  // namespace
}  // namespace brigade::device
