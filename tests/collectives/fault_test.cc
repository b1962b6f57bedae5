// Faults between ranks that are threads: each is an error that names the culprit, on every rank, in bounded time.

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Arrays {
  std::vector<float> input = std::vector<float>(256, 1.0f);
  std::vector<float> output = std::vector<float>(256);
};

absl::Status AllReduce(Rank& self, Arrays& arrays, int64_t count = 64) {
  return self.communicator->AllReduce(arrays.input.data(), arrays.output.data(), count, {},
                                      *self.stream);
}

// The survivors go on: a new communicator gives the right sum.
void ExpectRebuilt(Rank& self, std::vector<int> lost) {
  auto shrunk = self.communicator->Shrink(lost);
  ASSERT_OK(shrunk);
  Arrays arrays;
  ASSERT_OK((*shrunk)->AllReduce(arrays.input.data(), arrays.output.data(), 64, {}, *self.stream));
  ASSERT_OK(self.stream->Synchronize());
  EXPECT_EQ((*shrunk)->size(), self.size - static_cast<int>(lost.size()));
  EXPECT_EQ(arrays.output[63], static_cast<float>((*shrunk)->size()));
  // Nobody leaves before all have their sums.
  ASSERT_OK((*shrunk)->Barrier(*self.stream));
}

TEST(FaultTest, ARankThatNeverJoinsIsNamedWithinTheDeadline) {
  OnThreads({.size = 4, .timeout = std::chrono::milliseconds(300)}, [](Rank& self) {
    Arrays arrays;
    if (self.rank == 2) {  // stopped: its communicator lives, but it does not come
      while (self.communicator->status().ok()) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      EXPECT_THAT(AllReduce(self, arrays), StatusIs(absl::StatusCode::kDeadlineExceeded));
      return;
    }
    const auto start = Clock::now();
    const absl::Status status = AllReduce(self, arrays);
    EXPECT_LT(SecondsSince(start), 0.36 + 0.2);  // deadline + 20 %, and a busy machine
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 AllOf(HasSubstr("rank 2 did not join within 0.3 s"),
                                       HasSubstr("all_reduce(sum of 64 float32, direct)"))));
    EXPECT_EQ(AllReduce(self, arrays), status) << "the first error stays";
    ExpectRebuilt(self, {2});
  });
}

TEST(FaultTest, ARankThatLeavesEarlyIsNamedAtOnce) {
  std::vector<Arrays> all(3);  // outlive the ranks: their work may be outstanding
  OnThreads({.size = 3}, [&](Rank& self) {
    Arrays& arrays = all[static_cast<size_t>(self.rank)];
    ASSERT_OK(AllReduce(self, arrays));
    if (self.rank == 0) return;
    const auto start = Clock::now();
    EXPECT_THAT(AllReduce(self, arrays),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0 has left")));
    EXPECT_LT(SecondsSince(start), 2.0);
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(arrays.output[0], 3.0f) << "what was complete stays so";
    ExpectRebuilt(self, {0});
  });
}

// Calls that differ: an error on all ranks that names both sides, and a communicator that has ended.
void ExpectMismatch(const std::function<absl::Status(Rank&, Arrays&, bool odd)>& call,
                    const std::string& usual, const std::string& different) {
  OnThreads({.size = 3}, [&](Rank& self) {
    Arrays arrays;
    ASSERT_OK(AllReduce(self, arrays));
    const absl::Status status = call(self, arrays, self.rank == 1);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("rank 0 calls " + usual + " as its call 1"),
                                       HasSubstr("rank 1 calls " + different + " as its call 1"))));
    EXPECT_EQ(self.communicator->status(), status);
    ASSERT_OK(self.stream->Synchronize());
    ExpectRebuilt(self, {});
  });
}

TEST(FaultTest, CountsThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) { return AllReduce(self, arrays, odd ? 65 : 64); },
      "all_reduce(sum of 64 float32, direct)", "all_reduce(sum of 65 float32, direct)");
}

TEST(FaultTest, TypesThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) {
        const auto dtype = odd ? precision::DType::kInt32 : precision::DType::kFloat32;
        return self.communicator->AllReduce(arrays.input.data(), arrays.output.data(), 64, {dtype},
                                            *self.stream);
      },
      "all_reduce(sum of 64 float32, direct)", "all_reduce(sum of 64 int32, direct)");
}

TEST(FaultTest, OrdersThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) {
        return odd ? self.communicator->Barrier(*self.stream) : AllReduce(self, arrays);
      },
      "all_reduce(sum of 64 float32, direct)", "barrier()");
}

TEST(FaultTest, RootsThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) {
        return self.communicator->Broadcast(arrays.input.data(), arrays.output.data(), 8,
                                            odd ? 1 : 0, {}, *self.stream);
      },
      "broadcast(8 float32, from rank 0)", "broadcast(8 float32, from rank 1)");
}

TEST(FaultTest, SendAndReceiveThatDiffer) {
  OnThreads({.size = 2}, [](Rank& self) {
    Arrays arrays;
    const absl::Status status =
        self.rank == 0 ? self.communicator->Send(arrays.input.data(), 4, 1, {}, *self.stream)
                       : self.communicator->Receive(arrays.output.data(), 5, 0, {}, *self.stream);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("rank 0 calls send(4 float32"),
                                       HasSubstr("rank 1 calls send(5 float32"))));
  });
}

TEST(FaultTest, AbortEndsABlockedCallAtOnceAndTwiceIsSafe) {
  OnThreads({.size = 3}, [](Rank& self) {
    Arrays arrays;
    const absl::Status reason = absl::CancelledError("rank 2 ran out of data");
    if (self.rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      self.communicator->Abort(reason);
      self.communicator->Abort(absl::InternalError("too late"));
      EXPECT_EQ(AllReduce(self, arrays), reason);
    } else {
      std::atomic<int64_t> aborted_ns{0};
      std::thread watch([&] {
        while (self.communicator->status().ok()) std::this_thread::yield();
        aborted_ns = Clock::now().time_since_epoch().count();
      });
      EXPECT_EQ(AllReduce(self, arrays), reason);
      const auto back = Clock::now();
      watch.join();
      const auto aborted = Clock::time_point(Clock::duration(aborted_ns.load()));
      EXPECT_LT(std::chrono::duration<double>(back - aborted).count(), 0.1);
    }
    ExpectRebuilt(self, {});
  });
}

TEST(FaultTest, AStreamThatHasFailedIsNamedOnAllRanks) {
  OnThreads({.size = 3}, [](Rank& self) {
    Arrays arrays;
    if (self.rank == 1) {
      ASSERT_OK(self.stream->Enqueue(
          {"loader"}, [](device::ThreadPool&) { return absl::DataLossError("bad record"); }));
      EXPECT_FALSE(self.stream->Synchronize().ok());
    }
    EXPECT_THAT(AllReduce(self, arrays),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("rank 1 cannot join"), HasSubstr("bad record"))));
  });
}

TEST(FaultTest, TwoRanksWithOneNumber) {
  const RanksOptions options = {.size = 2};
  auto group = ThreadGroup::Create({.size = 2}).value();
  auto context = NewRankContext(0, options);
  auto first = group->Join(0, *context);
  ASSERT_OK(first);
  EXPECT_THAT(group->Join(0, *context),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("two ranks with number 0")));
  EXPECT_THAT(group->Join(2, *context),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 2")));
  EXPECT_THAT(ThreadGroup::Create({.size = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not 0")));
  EXPECT_THAT(ThreadGroup::Create({.size = 65}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not 65")));
  EXPECT_THAT(ThreadGroup::Create({.size = 1, .timeout = std::chrono::seconds(0)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("timeout")));
}

// A late producer on another stream, and reuse of the buffer right after: never stale data.
void LateProducer(bool with_wait, device::RaceChecker& checker, std::vector<float>& seen) {
  const RanksOptions options = {
      .size = 2, .random_delay = {.seed = 5, .max_delay_us = 2000}, .race_checker = &checker};
  OnThreads(options, [&](Rank& self) {
    auto producer = self.context->CreateStream("producer").value();
    auto ready = self.context->CreateEvent("ready").value();
    auto buffer = self.context->Allocate(1024, device::Purpose::kGradients, "gradient").value();
    float* const data = buffer.as<float>().data();
    Arrays arrays;
    for (float step = 1; step <= 5; ++step) {
      ASSERT_OK(
          producer->Enqueue({"produce", {device::Writes(data, 1024)}}, [=](device::ThreadPool&) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            // Without the wait it only says so: the checker judges by what is declared.
            if (with_wait) std::fill_n(data, 256, step);
            return absl::OkStatus();
          }));
      ASSERT_OK(producer->Record(*ready));
      if (with_wait) {
        ASSERT_OK(self.stream->Wait(*ready));
      }
      ASSERT_OK(self.communicator->AllReduce(data, arrays.output.data(), 256, {}, *self.stream));
      ASSERT_OK(self.stream->Record(*ready));
      ASSERT_OK(producer->Wait(*ready));  // before it writes the buffer again
      const absl::Status status = self.stream->Synchronize();
      EXPECT_EQ(status.ok(), with_wait) << status;
      if (self.rank == 0) seen.push_back(arrays.output[255]);
      if (!with_wait) {
        ASSERT_OK(self.stream->Reset());
      }
    }
  });
}

TEST(FaultTest, ALateProducerIsWaitedForAndAForgottenWaitIsReported) {
  std::vector<float> seen;
  device::RaceChecker good;
  LateProducer(true, good, seen);
  EXPECT_THAT(seen, ::testing::ElementsAre(2, 4, 6, 8, 10));
  EXPECT_THAT(good.reports(), ::testing::IsEmpty());
  device::RaceChecker bad;
  LateProducer(false, bad, seen);
  EXPECT_THAT(bad.reports(),
              ::testing::Contains(::testing::Field(
                  &device::Race::message, AllOf(HasSubstr("produce"), HasSubstr("reduce")))));
}

}  // namespace
}  // namespace brigade::collectives
