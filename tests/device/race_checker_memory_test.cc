// What the race checker remembers of memory: its life, and for how long.

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/race_checker_fixture.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using RaceCheckerMemoryTest = RaceCheckerTest;

TEST_F(RaceCheckerMemoryTest, FreeingWhatAnotherContextStillUsesIsARace) {
  ASSERT_OK(Touch(*comm_, "gather", {Reads(data_, 8)}));
  buffer_ = Buffer();
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_THAT(checker_.reports()[0].message,
              HasSubstr("\"free\" on a host thread writes and \"gather\" on stream \"comm\" of "
                        "\"rank 1\" reads bytes [0, 8) of \"grads\""));
}

TEST_F(RaceCheckerMemoryTest, FreeingWhatTheOwnContextUsesWaitsAndIsNone) {
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 8)}));
  buffer_ = Buffer();
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(RaceCheckerMemoryTest, ForgetsFreedAddresses) {
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 4096)}));
  EXPECT_EQ(checker_.intervals(), 1);
  buffer_ = Buffer();
  EXPECT_EQ(checker_.intervals(), 0);
}

TEST_F(RaceCheckerMemoryTest, FollowsUnregisteredMemoryUntilAHostHasWaited) {
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

TEST_F(RaceCheckerMemoryTest, KeepsHistoryOverTheEndOfABorrow) {
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

TEST_F(RaceCheckerMemoryTest, ABorrowOverABufferKeepsTheBuffersNameAndHistory) {
  ASSERT_OK(Touch(*compute_, "write", {Writes(data_, 64)}));
  { const Buffer view = rank1_->Borrow(data_ + 16, 16, "view").value(); }
  ASSERT_OK(Touch(*comm_, "read", {Reads(data_ + 16, 16)}));
  ASSERT_THAT(checker_.reports(), SizeIs(1));
  EXPECT_THAT(checker_.reports()[0].message, HasSubstr("bytes [16, 32) of \"grads\""));
}

// A long run: slots reused through events, pieces of changing sizes, short-lived streams, threads,
// buffers and borrows.
TEST_F(RaceCheckerMemoryTest, StaysConstantInALongRun) {
  auto consumed = rank1_->CreateEvent("consumed").value();
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
    auto stream = rank1_->CreateStream("short-lived").value();
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
