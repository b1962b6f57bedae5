// Ranks that leave, fail or hang: an error on every rank that names the culprit. Those that do
// something else are in nccl_fault_conformance_test.

#include <chrono>
#include <thread>

#include "absl/time/clock.h"
#include "brigade/tests/collectives/engines/nccl/faults.h"
#include "brigade/tests/device/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Without a comparison only the call's own deadline is left. It starts when the call is at the head
// of its stream.
TEST_F(NcclFaultTest, ACallThatDoesNotEndIsAbortedAtItsDeadline) {
  On(
      {.size = 2},
      [&](Rank& self) {
        if (self.rank == 0) {
          AwaitEnd(self).IgnoreError();
          return;
        }
        device::Gate gate;
        ASSERT_OK(device::Block(*self.stream, gate));
        ASSERT_OK(AllReduce(self));
        absl::SleepFor(1.2 * kTimeout);
        EXPECT_OK(self.communicator->status());
        const auto start = Clock::now();
        gate.Open();
        const absl::Status status = AwaitEnd(self);
        EXPECT_GE(absl::FromChrono(Clock::now() - start), kTimeout);
        EXPECT_THAT(
            status,
            StatusIs(absl::StatusCode::kDeadlineExceeded,
                     "rank 1 calls all_reduce(sum of 64 fp32, native, rounded_per_hop) as its call "
                     "0, which has not ended within 1s"));
      },
      [](int rank, NcclOptions& options) {
        options.compare_calls = false;
        LetRank1ExpireFirst(rank, options);
      });
}

TEST_F(NcclFaultTest, ARankThatLeavesEarlyIsNamedAndWhatItTookPartInEnds) {
  On({.size = 3}, [&](Rank& self) {
    ASSERT_OK(AllReduce(self));
    if (self.rank == 0) return;
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(ArraysOf(self).output[0], 3.0f);
    AllReduce(self).IgnoreError();
    EXPECT_THAT(AwaitEnd(self),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0 has left")));
    ExpectRebuilt(self, {0});
  });
}

// One that its receiver keeps waiting for less than the timeout; nobody else takes part in it.
TEST_F(NcclFaultTest, ASendThatIsLateAndEndsWellEndsNothing) {
  for (const bool then_reduces : {true, false}) {
    On({.size = 2, .timeout = kTimeout}, [&](Rank& self) {
      Communicator& group = *self.communicator;
      Arrays& arrays = ArraysOf(self);
      if (self.rank == 0) {
        ASSERT_OK(group.Send(arrays.input.data(), 8, kFloat32, 1, *self.stream));
      } else {
        absl::SleepFor(0.4 * kTimeout);
        ASSERT_OK(group.Receive(arrays.output.data(), 8, kFloat32, 0, *self.stream));
      }
      ASSERT_OK(group.Synchronize(*self.stream));
      if (then_reduces) {
        ASSERT_OK(AllReduce(self));
        ASSERT_OK(group.Synchronize(*self.stream));
        EXPECT_EQ(arrays.output[63], 2.0f);
      } else {
        // Longer than all deadlines.
        absl::SleepFor(3 * kTimeout);
      }
      EXPECT_OK(group.status());
      self.AwaitOthers();
    });
  }
}

TEST_F(NcclFaultTest, AReceiveOfWhatIsNotSentEndsAfterItsTimeoutAndNamesTheSender) {
  On({.size = 2, .timeout = kTimeout}, [&](Rank& self) {
    const auto start = Clock::now();
    if (self.rank == 0) {
      ASSERT_OK(
          self.communicator->Receive(ArraysOf(self).output.data(), 8, kFloat32, 1, *self.stream));
    }
    const absl::Status status = AwaitEnd(self);
    EXPECT_GE(absl::FromChrono(Clock::now() - start), kTimeout);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 AllOf(HasSubstr("rank 1 did not join"),
                                       HasSubstr("rank 0 calls send(8 fp32, from rank 1)"))));
  });
}

TEST_F(NcclFaultTest, DestructionWaitsForWhatIsEnqueued) {
  On({.size = 2}, [&](Rank& self) {
    ASSERT_OK(self.stream->Enqueue({"slow"}, [&](device::ThreadPool&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100 * self.rank));
      return absl::OkStatus();
    }));
    ASSERT_OK(AllReduce(self));
    self.communicator.reset();
    EXPECT_EQ(ArraysOf(self).output[63], 2.0f);
  });
}

TEST_F(NcclFaultTest, AStreamThatHasFailedIsNamedOnAllRanks) {
  for (const bool known : {true, false}) {
    device::Gate gate;
    On({.size = 3}, [&](Rank& self) {
      if (self.rank == 1) {
        ASSERT_OK(self.stream->Enqueue({"loader"}, [&](device::ThreadPool&) {
          if (!known) gate.Pass();
          return absl::DataLossError("bad record");
        }));
        if (known) {
          EXPECT_FALSE(self.stream->Synchronize().ok());
        }
      }
      AllReduce(self).IgnoreError();
      if (self.rank == 1) gate.Open();
      while (self.communicator->status().ok()) std::this_thread::yield();
      EXPECT_THAT(self.communicator->status(),
                  StatusIs(absl::StatusCode::kDataLoss,
                           AllOf(HasSubstr(known ? "rank 1 cannot join" : "rank 1 cannot complete"),
                                 HasSubstr("bad record"))));
      self.stream->Synchronize().IgnoreError();
    });
  }
}

}  // namespace
}  // namespace brigade::collectives
