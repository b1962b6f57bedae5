// How an error in the middle of a queue behaves, and how it travels: docs/device.md, rules 7 to 11.

#include <memory>
#include <string>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;

constexpr char kBroken[] = "\"broken\" on stream \"compute\" of \"rank 0\": disk on fire";

class ErrorTest : public ::testing::Test {
 protected:
  absl::Status Append(Stream& stream, int value) {
    return stream.Enqueue({"append", {}}, [this, value](ThreadPool&) {
      ran_.push_back(value);
      return absl::OkStatus();
    });
  }

  std::vector<int> ran_;
  Gate gate_;
  std::unique_ptr<Context> context_ = CreateContext(CpuOptions());
  std::unique_ptr<Stream> compute_ = context_->CreateStream("compute").value();
};

TEST_F(ErrorTest, SkipsWhatIsQueuedBehindAndKeepsTheFirstError) {
  ASSERT_OK(Block(*compute_, gate_));
  ASSERT_OK(Append(*compute_, 1));
  ASSERT_OK(Fail(*compute_, "disk on fire"));
  ASSERT_OK(Append(*compute_, 2));
  ASSERT_OK(Fail(*compute_, "a later one"));
  EXPECT_OK(compute_->status());
  gate_.Open();
  EXPECT_THAT(compute_->Synchronize(), StatusIs(absl::StatusCode::kDataLoss, kBroken));
  EXPECT_THAT(compute_->Synchronize(), StatusIs(absl::StatusCode::kDataLoss, kBroken));
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(ErrorTest, DestroysTheClosuresItSkips) {
  auto token = std::make_shared<int>(0);
  ASSERT_OK(Fail(*compute_, "disk on fire"));
  // May be refused or skipped, by timing: either way nothing is kept.
  compute_->Enqueue({"owner", {}}, [token](ThreadPool&) { return absl::OkStatus(); }).IgnoreError();
  EXPECT_FALSE(compute_->Synchronize().ok());
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(ErrorTest, RefusesNewWorkUntilReset) {
  char memory[4] = {};
  ASSERT_OK(Fail(*compute_, "disk on fire"));
  ASSERT_FALSE(compute_->Synchronize().ok());
  for (const absl::Status& refused : {Append(*compute_, 1), compute_->FillBytes(memory, 1, 4),
                                      compute_->status(), compute_->Copy(memory, memory + 2, 2)}) {
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kDataLoss, kBroken));
  }
  ASSERT_OK(compute_->Reset());
  EXPECT_OK(compute_->status());
  ASSERT_OK(Append(*compute_, 2));
  ASSERT_OK(compute_->Synchronize());
  EXPECT_THAT(ran_, ElementsAre(2));
  EXPECT_EQ(memory[0], 0);
}

TEST_F(ErrorTest, ResetWaitsForWhatIsQueued) {
  ASSERT_OK(Block(*compute_, gate_));
  ASSERT_OK(Fail(*compute_, "disk on fire"));
  ASSERT_OK(Append(*compute_, 1));
  gate_.AwaitArrival();
  gate_.Open();
  ASSERT_OK(compute_->Reset());
  ASSERT_OK(Append(*compute_, 2));
  ASSERT_OK(compute_->Synchronize());
  EXPECT_THAT(ran_, ElementsAre(2));
}

TEST_F(ErrorTest, TravelsOverThreeStreamsWithItsRoute) {
  auto other = CreateContext(CpuOptions("rank 1"));
  auto comm = context_->CreateStream("comm").value();
  auto update = other->CreateStream("update").value();
  auto ready = context_->CreateEvent("ready").value();
  auto reduced = context_->CreateEvent("reduced").value();
  auto updated = other->CreateEvent("updated").value();

  ASSERT_OK(Block(*compute_, gate_));
  ASSERT_OK(Fail(*compute_, "disk on fire"));
  ASSERT_OK(compute_->Record(*ready));
  ASSERT_OK(comm->Wait(*ready));
  ASSERT_OK(Append(*comm, 1));
  ASSERT_OK(comm->Record(*reduced));
  ASSERT_OK(update->Wait(*reduced));
  ASSERT_OK(Append(*update, 2));
  ASSERT_OK(update->Record(*updated));
  gate_.Open();

  const std::string over_comm =
      std::string(kBroken) + "; reached stream \"comm\" of \"rank 0\" through event \"ready\"";
  const std::string over_update =
      over_comm + "; reached stream \"update\" of \"rank 1\" through event \"reduced\"";
  EXPECT_THAT(updated->Synchronize(),
              StatusIs(absl::StatusCode::kDataLoss,
                       over_update + "; reached the host through event \"updated\""));
  EXPECT_THAT(update->Synchronize(), StatusIs(absl::StatusCode::kDataLoss, over_update));
  EXPECT_THAT(comm->Synchronize(), StatusIs(absl::StatusCode::kDataLoss, over_comm));
  EXPECT_THAT(reduced->Query(),
              StatusIs(absl::StatusCode::kDataLoss,
                       over_comm + "; reached the host through event \"reduced\""));
  EXPECT_THAT(ran_, ElementsAre());
}

TEST_F(ErrorTest, DoesNotReachEventsRecordedBeforeIt) {
  auto comm = context_->CreateStream("comm").value();
  auto before = context_->CreateEvent("before").value();
  ASSERT_OK(Append(*compute_, 1));
  ASSERT_OK(compute_->Record(*before));
  ASSERT_OK(Fail(*compute_, "disk on fire"));
  ASSERT_OK(comm->Wait(*before));
  ASSERT_OK(Append(*comm, 2));
  EXPECT_OK(before->Synchronize());
  EXPECT_OK(comm->Synchronize());
  EXPECT_FALSE(compute_->Synchronize().ok());
  EXPECT_THAT(ran_, ElementsAre(1, 2));
}

TEST_F(ErrorTest, IsCarriedByEventsRecordedAfterTheHostKnows) {
  auto event = context_->CreateEvent("late").value();
  ASSERT_OK(Fail(*compute_, "disk on fire"));
  ASSERT_FALSE(compute_->Synchronize().ok());
  ASSERT_OK(compute_->Record(*event));
  EXPECT_THAT(event->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(ErrorTest, StaysWithARecordMadeBeforeResetAndNotWithOneMadeAfter) {
  auto before = context_->CreateEvent("before").value();
  auto after = context_->CreateEvent("after").value();
  ASSERT_OK(Fail(*compute_, "disk on fire"));
  ASSERT_OK(compute_->Record(*before));
  ASSERT_OK(compute_->Reset());
  ASSERT_OK(compute_->Record(*after));
  EXPECT_THAT(before->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_OK(after->Synchronize());
  ASSERT_OK(compute_->Record(*before));
  EXPECT_OK(before->Synchronize());
}

TEST_F(ErrorTest, LeavesAFailedStreamWaitingSoThatItsEventsMeanWhatTheySay) {
  auto slow = context_->CreateStream("slow").value();
  auto slow_done = context_->CreateEvent("slow_done").value();
  auto joined = context_->CreateEvent("joined").value();
  ASSERT_OK(Block(*slow, gate_));
  ASSERT_OK(slow->Record(*slow_done));
  ASSERT_OK(Fail(*compute_, "disk on fire"));
  ASSERT_FALSE(compute_->Synchronize().ok());
  ASSERT_OK(compute_->Wait(*slow_done));
  ASSERT_OK(compute_->Record(*joined));
  gate_.AwaitArrival();
  EXPECT_EQ(joined->Query().value(), false);
  gate_.Open();
  EXPECT_THAT(joined->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace brigade::device
