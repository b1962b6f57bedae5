#include "brigade/device/race_checker.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Operations only declare what they touch: what races physically is ThreadSanitizer's business.
absl::Status Touch(Stream& stream, absl::string_view name, std::vector<Access> accesses) {
  return stream.Enqueue({name, accesses}, [](ThreadPool&) { return absl::OkStatus(); });
}

class RaceCheckerTest : public ::testing::Test {
 protected:
  // Freeing the buffer is no race then.
  ~RaceCheckerTest() override { comm_->Synchronize().IgnoreError(); }

  RaceChecker checker_;
  std::unique_ptr<Context> rank0_ = MakeContext(CheckedOptions(checker_, "rank 0"));
  std::unique_ptr<Context> rank1_ = MakeContext(CheckedOptions(checker_, "rank 1"));
  std::unique_ptr<Stream> compute_ = rank0_->NewStream("compute").value();
  std::unique_ptr<Stream> comm_ = rank1_->NewStream("comm").value();
  std::unique_ptr<Event> event_ = rank0_->NewEvent("ready").value();
  Buffer buffer_ = rank0_->Allocate(4096, Purpose::kGradients, "grads").value();
  char* const data_ = buffer_.as<char>().data();
};

constexpr char kMessage[] =
    "race: \"adam\" on stream \"compute\" of \"rank 0\" writes and \"gather\" on stream \"comm\" "
    "of "
    "\"rank 1\" reads bytes [1024, 2048) of \"grads\"; no event orders them";

TEST_F(RaceCheckerTest, NamesBothOperationsStreamsBytesAndBuffer) {
  ASSERT_OK(Touch(*compute_, "adam", {Writes(data_, 2048)}));
  ASSERT_OK(Touch(*comm_, "gather", {Reads(data_ + 1024, 3072)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  const Race race = checker_.reports()[0];
  EXPECT_EQ(race.message, kMessage);
  EXPECT_EQ(race.first, (Race::Side{"adam", "compute", "rank 0", true}));
  EXPECT_EQ(race.second, (Race::Side{"gather", "comm", "rank 1", false}));
}

TEST_F(RaceCheckerTest, SaysTheSameWhicheverComesFirst) {
  ASSERT_OK(Touch(*comm_, "gather", {Reads(data_ + 1024, 3072)}));
  ASSERT_OK(Touch(*compute_, "adam", {Writes(data_, 2048)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_EQ(checker_.reports()[0].message, kMessage);
}

TEST_F(RaceCheckerTest, FailsTheSecondStreamsSynchronizeAndStillRunsTheWork) {
  bool ran = false;
  ASSERT_OK(Touch(*compute_, "adam", {Writes(data_, 2048)}));
  ASSERT_OK(comm_->Enqueue({"gather", {Reads(data_ + 1024, 3072)}}, [&ran](ThreadPool&) {
    ran = true;
    return absl::OkStatus();
  }));
  EXPECT_THAT(comm_->Synchronize(), StatusIs(absl::StatusCode::kFailedPrecondition, kMessage));
  EXPECT_THAT(comm_->status(), StatusIs(absl::StatusCode::kFailedPrecondition, kMessage));
  EXPECT_TRUE(ran);
  EXPECT_OK(compute_->Synchronize());
  ASSERT_OK(comm_->Reset());
  EXPECT_OK(comm_->Synchronize());
}

TEST_F(RaceCheckerTest, ReportsAPairOnce) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK(Touch(*compute_, "adam", {Writes(data_ + i, 2048)}));
    ASSERT_OK(Touch(*comm_, "gather", {Reads(data_ + 1024, 1024), Reads(data_, 10)}));
  }
  EXPECT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_EQ(checker_.reports_left_off(), 0);
  checker_.ClearReports();
  ASSERT_OK(Touch(*compute_, "adam", {Writes(data_, 2048)}));
  EXPECT_THAT(checker_.reports(), SizeIs(1));
}

TEST_F(RaceCheckerTest, KeepsABoundedListAndCountsTheRest) {
  for (int i = 0; i < 300; ++i) {
    ASSERT_OK(Touch(*compute_, "write " + std::to_string(i), {Writes(data_, 1)}));
    ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 1)}));
  }
  EXPECT_THAT(checker_.reports(), SizeIs(256));
  EXPECT_GT(checker_.reports_left_off(), 0);
}

TEST_F(RaceCheckerTest, ReadersAndDisjointWritersDoNotConflict) {
  ASSERT_OK(Touch(*compute_, "a", {Reads(data_, 100), Writes(data_ + 100, 100)}));
  ASSERT_OK(Touch(*comm_, "b", {Reads(data_, 100), Writes(data_ + 200, 100)}));
  ASSERT_OK(Touch(*comm_, "empty", {Writes(data_ + 150, 0)}));
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(RaceCheckerTest, AnEventOrdersAndAStaleOneDoesNot) {
  ASSERT_OK(Touch(*compute_, "first", {Writes(data_, 8)}));
  ASSERT_OK(compute_->Record(*event_));
  ASSERT_OK(Touch(*compute_, "second", {Writes(data_ + 8, 8)}));
  ASSERT_OK(comm_->Wait(*event_));
  ASSERT_OK(Touch(*comm_, "read first", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), IsEmpty());
  ASSERT_OK(Touch(*comm_, "read second", {Reads(data_ + 8, 8)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_EQ(checker_.reports()[0].second.operation, "second");
}

TEST_F(RaceCheckerTest, OrderIsTransitive) {
  auto middle = rank0_->NewStream("middle").value();
  auto passed = rank0_->NewEvent("passed").value();
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  ASSERT_OK(compute_->Record(*event_));
  ASSERT_OK(middle->Wait(*event_));
  ASSERT_OK(middle->Record(*passed));
  ASSERT_OK(comm_->Wait(*passed));
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(RaceCheckerTest, AWriterMustWaitForAllReaders) {
  auto second_reader = rank1_->NewStream("second").value();
  auto read = rank1_->NewEvent("read").value();
  ASSERT_OK(Touch(*comm_, "read one", {Reads(data_, 8)}));
  ASSERT_OK(Touch(*second_reader, "read two", {Reads(data_, 8)}));
  ASSERT_OK(comm_->Record(*read));
  ASSERT_OK(compute_->Wait(*read));
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_EQ(checker_.reports()[0].first.operation, "read two");
}

TEST_F(RaceCheckerTest, AHostThatSynchronizedOrdersWhatItEnqueuesNext) {
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  ASSERT_OK(compute_->Synchronize());
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), IsEmpty());

  ASSERT_OK(comm_->Record(*event_));
  ASSERT_OK(event_->Synchronize());
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  EXPECT_THAT(checker_.reports(), IsEmpty());

  ASSERT_OK(compute_->Record(*event_));
  while (!event_->Query().value()) std::this_thread::yield();
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(RaceCheckerTest, SynchronizingHelpsOnlyTheThreadThatDidIt) {
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  std::thread([this] { EXPECT_OK(compute_->Synchronize()); }).join();
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), SizeIs(1));
}

// A thread that waited for a write passes what it knows on to one that enqueues the read.
TEST_F(RaceCheckerTest, KnowsThatHostThreadsMeetWhenTold) {
  VectorClock message;
  std::thread([&] {
    EXPECT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
    EXPECT_OK(compute_->Synchronize());
    message = checker_.HostRelease();
  }).join();
  checker_.HostAcquire(message);
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(RaceCheckerTest, DoesNotGuessThatHostThreadsMeet) {
  std::thread([&] {
    EXPECT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
    EXPECT_OK(compute_->Synchronize());
  }).join();
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), SizeIs(1));
}

TEST_F(RaceCheckerTest, HostThreadsDeclareTheirOwnAccesses) {
  EXPECT_OK(checker_.HostWrite("fill", data_, 8));
  ASSERT_OK(Touch(*compute_, "read", {Reads(data_, 8)}));  // enqueued after it by the same thread
  EXPECT_OK(checker_.HostRead("look", data_, 8));          // two readers
  EXPECT_THAT(checker_.HostWrite("refill", data_, 8),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "race: \"read\" on stream \"compute\" of \"rank 0\" reads and "
                       "\"refill\" on a host thread writes bytes [0, 8) of \"grads\"; no event "
                       "orders them"));
  ASSERT_OK(compute_->Synchronize());
  EXPECT_OK(checker_.HostWrite("fill again", data_, 8));
  EXPECT_THAT(checker_.reports(), SizeIs(1));
}

TEST_F(RaceCheckerTest, FreeingWhatAnotherContextStillUsesIsARace) {
  ASSERT_OK(Touch(*comm_, "gather", {Reads(data_, 8)}));
  buffer_ = Buffer();
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_THAT(checker_.reports()[0].message,
              HasSubstr("\"free\" on a host thread writes and \"gather\" on stream \"comm\" of "
                        "\"rank 1\" reads bytes [0, 8) of \"grads\""));
}

TEST_F(RaceCheckerTest, FreeingWhatTheOwnContextUsesWaitsAndIsNone) {
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  buffer_ = Buffer();
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(RaceCheckerTest, ForgetsFreedAddresses) {
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 4096)}));
  EXPECT_EQ(checker_.intervals(), 1);
  buffer_ = Buffer();
  EXPECT_EQ(checker_.intervals(), 0);
}

TEST_F(RaceCheckerTest, FollowsMemoryThatNobodyRegisteredUntilAHostHasWaited) {
  std::vector<char> raw(64);
  ASSERT_OK(Touch(*compute_, "write", {Writes(raw.data(), 64)}));
  ASSERT_OK(Touch(*comm_, "read", {Reads(raw.data(), 64)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_THAT(checker_.reports()[0].message, HasSubstr("bytes [0x"));
  EXPECT_EQ(checker_.intervals(), 1);
  EXPECT_OK(compute_->Synchronize());
  EXPECT_FALSE(comm_->Synchronize().ok());
  EXPECT_EQ(checker_.intervals(), 0);
}

TEST_F(RaceCheckerTest, KeepsHistoryOverTheEndOfABorrow) {
  std::vector<char> raw(64);
  {
    const Buffer lent = rank0_->Borrow(raw.data(), 64, "lent").value();
    ASSERT_OK(Touch(*compute_, "write", {Writes(raw.data(), 64)}));
  }
  const Buffer again = rank1_->Borrow(raw.data() + 32, 32, "lent again").value();
  ASSERT_OK(Touch(*comm_, "read", {Reads(raw.data() + 40, 8)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_THAT(checker_.reports()[0].message, HasSubstr("bytes [8, 16) of \"lent again\""));
}

TEST_F(RaceCheckerTest, ABorrowOverABufferKeepsTheBuffersNameAndHistory) {
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 64)}));
  { const Buffer view = rank1_->Borrow(data_ + 16, 16, "view").value(); }
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_ + 16, 16)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_THAT(checker_.reports()[0].message, HasSubstr("bytes [16, 32) of \"grads\""));
}

TEST_F(RaceCheckerTest, StreamsBorrowedFromTheSameOneAreOneActor) {
  int native = 0;
  const int first = checker_.AddBorrowedStream("theirs", "rank 0", 0, &native);
  const int second = checker_.AddBorrowedStream("theirs again", "rank 0", 0, &native);
  const int other_device = checker_.AddBorrowedStream("theirs", "rank 1", 1, &native);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other_device);
}

// Checkers of different contexts do not mix their clocks.
TEST_F(RaceCheckerTest, IgnoresTheClockOfAnotherChecker) {
  RaceChecker other;
  auto stranger = MakeContext(CheckedOptions(other, "stranger"));
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(stranger->NewStream("s").value());
  for (auto& stream : streams) ASSERT_OK(Touch(*stream, "work", {Reads(data_, 1)}));
  ASSERT_OK(streams.back()->Record(*event_));
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  ASSERT_OK(comm_->Wait(*event_));
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), SizeIs(1));
}

// A long run: slots reused through events, pieces of changing sizes, short-lived streams, threads, buffers and borrows.
TEST_F(RaceCheckerTest, StaysConstantInALongRun) {
  auto consumed = rank1_->NewEvent("consumed").value();
  const auto step = [&](int i) {
    const int64_t cut = 1 + (i * 37) % 4000;
    if (i > 0) {
      ASSERT_OK(compute_->Wait(*consumed));
    }
    ASSERT_OK(Touch(*compute_, "write " + std::to_string(i), {Writes(data_, cut)}));
    ASSERT_OK(Touch(*compute_, "write rest", {Writes(data_ + cut, 4096 - cut)}));
    ASSERT_OK(compute_->Record(*event_));
    ASSERT_OK(comm_->Wait(*event_));
    ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 4096)}));
    ASSERT_OK(comm_->Record(*consumed));
  };
  std::vector<char> raw(64);
  const Buffer constants = rank0_->Allocate(64, Purpose::kParameters, "constants").value();
  const auto churn = [&] {
    auto stream = rank1_->NewStream("short-lived").value();
    const Buffer lent = rank1_->Borrow(raw.data(), 64).value();
    ASSERT_OK(Touch(*stream, "read constants", {Reads(constants.data(), 64)}));
    ASSERT_OK(Touch(*stream, "write lent", {Writes(raw.data(), 64)}));
    ASSERT_OK(stream->Synchronize());
    std::thread([this] { checker_.HostRelease(); }).join();
  };
  for (int i = 0; i < 100; ++i) {
    step(i);
    churn();
  }
  const int64_t intervals = checker_.intervals();
  const int64_t actors = checker_.actors();
  int64_t most_intervals = 0;
  for (int i = 100; i < 10'000; ++i) {
    step(i);
    if (i % 10 == 0) churn();
    most_intervals = std::max(most_intervals, checker_.intervals());
  }
  EXPECT_LE(most_intervals, intervals + 2);
  EXPECT_LE(checker_.actors(), actors);
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

}  // namespace
}  // namespace brigade::device
