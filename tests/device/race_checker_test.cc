#include "brigade/device/race_checker/race_checker.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/race_checker_fixture.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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
  EXPECT_EQ(checker_.reports_dropped(), 0);
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
  EXPECT_GT(checker_.reports_dropped(), 0);
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
  auto middle = rank0_->CreateStream("middle").value();
  auto passed = rank0_->CreateEvent("passed").value();
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  ASSERT_OK(compute_->Record(*event_));
  ASSERT_OK(middle->Wait(*event_));
  ASSERT_OK(middle->Record(*passed));
  ASSERT_OK(comm_->Wait(*passed));
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(RaceCheckerTest, AWriterMustWaitForAllReaders) {
  auto second_reader = rank1_->CreateStream("second").value();
  auto read = rank1_->CreateEvent("read").value();
  ASSERT_OK(Touch(*comm_, "read one", {Reads(data_, 8)}));
  ASSERT_OK(Touch(*second_reader, "read two", {Reads(data_, 8)}));
  ASSERT_OK(comm_->Record(*read));
  ASSERT_OK(compute_->Wait(*read));
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_EQ(checker_.reports()[0].first.operation, "read two");
}

TEST_F(RaceCheckerTest, AReadDoesNotHideTheWriteBeforeIt) {
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  ASSERT_OK(Touch(*compute_, "read own", {Reads(data_, 8)}));
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_EQ(checker_.reports()[0].second.operation, "write");
}

TEST_F(RaceCheckerTest, ALaterReadDoesNotHideAnEarlierOne) {
  auto third = rank0_->CreateStream("third").value();
  ASSERT_OK(Touch(*compute_, "read one", {Reads(data_, 8)}));
  ASSERT_OK(compute_->Record(*event_));
  ASSERT_OK(comm_->Wait(*event_));
  ASSERT_OK(Touch(*comm_, "read two", {Reads(data_, 8)}));
  ASSERT_OK(Touch(*third, "write", {Writes(data_, 8)}));
  ASSERT_THAT(checker_.reports(), SizeIs(2));
  EXPECT_EQ(checker_.reports()[0].first.operation, "read one");
  EXPECT_EQ(checker_.reports()[1].first.operation, "read two");
}

TEST_F(RaceCheckerTest, AWriteDoesNotHideWhatItRacesWith) {
  auto third = rank0_->CreateStream("third").value();
  ASSERT_OK(Touch(*compute_, "write one", {Writes(data_, 8)}));
  ASSERT_OK(Touch(*comm_, "write two", {Writes(data_, 8)}));
  ASSERT_OK(comm_->Record(*event_));
  ASSERT_OK(third->Wait(*event_));
  ASSERT_OK(Touch(*third, "read", {Reads(data_, 8)}));
  ASSERT_THAT(checker_.reports(), SizeIs(2));
  EXPECT_EQ(checker_.reports()[1].first.operation, "read");
  EXPECT_EQ(checker_.reports()[1].second.operation, "write one");
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

TEST_F(RaceCheckerTest, StreamsBorrowedFromTheSameOneAreOneActor) {
  int native = 0;
  const int first = checker_.AddBorrowedStream("theirs", "rank 0", 0, &native);
  const int second = checker_.AddBorrowedStream("theirs again", "rank 0", 0, &native);
  const int other_device = checker_.AddBorrowedStream("theirs", "rank 1", 1, &native);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other_device);
}

// Clocks of two checkers number different actors: mixed, a tick of the other checker could hide a
// race.
TEST_F(RaceCheckerTest, IgnoresTheClockOfAnotherChecker) {
  RaceChecker other;
  auto outsider = CreateContext(CheckedOptions(other, "outsider"));
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(outsider->CreateStream("s").value());
  std::vector<std::unique_ptr<Event>> events;
  for (auto& stream : streams) {
    for (int i = 0; i < 9; ++i) {
      ASSERT_OK(Touch(*stream, "work", {}));
    }
    events.push_back(outsider->CreateEvent("e").value());
    ASSERT_OK(stream->Record(*events.back()));
  }
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  for (auto& event : events) {
    ASSERT_OK(comm_->Wait(*event));
  }
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_, 8)}));
  EXPECT_THAT(checker_.reports(), SizeIs(1));
}

// What is on stderr while `stream` gets work with these accesses.
std::string Told(Stream& stream, absl::string_view name, std::vector<Access> accesses) {
  ::testing::internal::CaptureStderr();
  EXPECT_OK(Touch(stream, name, std::move(accesses)));
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(RaceCheckerTest, NamesTheFirstOperationThatDeclaresNothing) {
  EXPECT_EQ(Told(*compute_, "adam", {Writes(data_, 16)}), "");
  EXPECT_EQ(Told(*compute_, "nothing", {Reads(nullptr, 0)}), "");
  EXPECT_EQ(Told(*compute_, "mine", {}),
            "race checker: \"mine\" on stream \"compute\" of \"rank 0\" declares no accesses, so "
            "its races are not seen; name them with Reads and Writes (device/operation.h), or "
            "Reads(nullptr, 0) where there are none. Others that declare nothing are not named.\n");
  EXPECT_EQ(Told(*compute_, "mine", {}), "");
  EXPECT_EQ(Told(*comm_, "another", {}), "");
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

}  // namespace
}  // namespace brigade::device
