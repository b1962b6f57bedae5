// Ranks that are threads, when one of them does something else than the others: each is an error on
// every rank that names the culprit.

#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "brigade/collectives/engines/threads/group_state.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/fault_conformance.h"
#include "brigade/tests/device/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class ThreadGroupFaults : public ::testing::TestWithParam<Action> {};

TEST_P(ThreadGroupFaults, WhenRanksDiffer) { ConformWhenRanksDiffer(GetParam(), {ThreadEngines}); }

INSTANTIATE_TEST_SUITE_P(Rank0, ThreadGroupFaults, ::testing::ValuesIn(AllActions()),
                         [](const auto& info) { return Name(info.param); });

TEST(ThreadGroupFaultTest, WhenArgumentsDiffer) { ConformWhenArgumentsDiffer({ThreadEngines}); }

TEST(ThreadGroupFaultTest, WhenAStreamHangs) { ConformWhenAStreamHangs({ThreadEngines}); }

TEST(ThreadGroupFaultTest, WhenARankHasLeft) { ConformWhenARankHasLeft({ThreadEngines}); }

struct Arrays {
  std::vector<float> input = std::vector<float>(256, 1.0f);
  std::vector<float> output = std::vector<float>(256);
};

absl::Status AllReduce(Rank& self, Arrays& arrays) {
  return self.communicator->AllReduce(arrays.input.data(), arrays.output.data(), 64,
                                      precision::DType::kFloat32, {}, *self.stream);
}

// By an error of which nothing here says when it comes.
absl::Status AwaitEnd(const Rank& self) {
  while (self.communicator->status().ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return self.communicator->status();
}

// The scratch of a larger call cannot be had before the stream has let go of the smaller one, which
// must not keep the others from their deadline.
TEST(ThreadGroupFaultTest, ARankWhoseStreamHoldsItsScratchIsNamed) {
  constexpr ReduceOptions kRing = {.reduction = Reduction::kFp32Partials,
                                   .algorithm = Algorithm::kRing};
  std::vector<std::vector<precision::BFloat16>> all(4, std::vector<precision::BFloat16>(4096));
  device::Gate gate;
  OnThreads({.size = 2, .timeout = absl::Seconds(1)}, [&](Rank& self) {
    const auto i = static_cast<size_t>(self.rank);
    const auto sum = [&](int64_t count) {
      return self.communicator->AllReduce(all[i].data(), all[i + 2].data(), count,
                                          precision::DType::kBFloat16, kRing, *self.stream);
    };
    ASSERT_OK(sum(64));
    ASSERT_OK(self.stream->Synchronize());
    if (self.rank == 1) {
      ASSERT_OK(device::Block(*self.stream, gate));
      EXPECT_THAT(sum(4096), StatusIs(absl::StatusCode::kDeadlineExceeded));
    } else {
      EXPECT_THAT(sum(4096), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      HasSubstr("rank 1 did not join within 1s")));
      gate.Open();
    }
    self.AwaitOthers();
  });
}

// The survivors go on: a new communicator gives the right sum.
void ExpectRebuilt(Rank& self, const std::vector<int>& lost) {
  auto shrunk = self.communicator->Shrink(lost);
  ASSERT_OK(shrunk);
  Arrays arrays;
  ASSERT_OK((*shrunk)->AllReduce(arrays.input.data(), arrays.output.data(), 64,
                                 precision::DType::kFloat32, {}, *self.stream));
  ASSERT_OK(self.stream->Synchronize());
  EXPECT_EQ((*shrunk)->size(), self.size - static_cast<int>(lost.size()));
  EXPECT_EQ(arrays.output[63], static_cast<float>((*shrunk)->size()));
  // Nobody leaves before all have their sums.
  ASSERT_OK((*shrunk)->Barrier(*self.stream));
}

TEST(ThreadGroupFaultTest, SurvivorsGoOnWithoutARankThatNeverJoins) {
  std::latch done(3);
  OnThreads({.size = 3, .timeout = absl::Seconds(1)}, [&](Rank& self) {
    Arrays arrays;
    if (self.rank == 1) {
      EXPECT_THAT(AwaitEnd(self), StatusIs(absl::StatusCode::kDeadlineExceeded));
      EXPECT_EQ(AllReduce(self, arrays), self.communicator->status());
    } else {
      EXPECT_THAT(AllReduce(self, arrays),
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           AllOf(HasSubstr("rank 1 did not join within 1s"),
                                 HasSubstr("all_reduce(sum of 64 fp32, direct)"))));
      ExpectRebuilt(self, {1});
    }
    done.arrive_and_wait();
  });
}

TEST(ThreadGroupFaultTest, ARankThatLeavesEarlyIsNamed) {
  std::vector<Arrays> all(3);  // outlive the ranks: their work may be outstanding
  OnThreads({.size = 3}, [&](Rank& self) {
    Arrays& arrays = all[static_cast<size_t>(self.rank)];
    ASSERT_OK(AllReduce(self, arrays));
    if (self.rank == 0) return;
    EXPECT_THAT(AllReduce(self, arrays),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0 has left")));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(arrays.output[0], 3.0f) << "what was complete stays so";
    ExpectRebuilt(self, {0});
  });
}

TEST(ThreadGroupFaultTest, ARankThatHasLeftIsNoErrorUntilItIsNeeded) {
  auto group = ThreadGroup::Create({.size = 2}).value();
  std::vector<std::unique_ptr<device::Context>> contexts;
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < 2; ++rank) {
    contexts.push_back(CreateRankContext(rank, {}));
    device::Context& context = *contexts.back();
    communicators.push_back(
        Communicator::Create(group->Join(rank, context).value(), context).value());
  }
  communicators[0].reset();
  Communicator& left = *communicators[1];
  auto stream = contexts[1]->CreateStream("compute").value();
  EXPECT_OK(left.Synchronize(*stream)) << "what rank 0 took part in has its results";
  const absl::Status status = left.AllGatherHost({1}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0 has left")));
  EXPECT_EQ(left.Synchronize(*stream), status);
}

TEST(ThreadGroupFaultTest, AShrinkOfAGroupThatWorksEndsItForTheRanksThatItLosesAndTheOthers) {
  std::latch all_are_here(3);
  OnThreads({.size = 3}, [&](Rank& self) {
    Arrays arrays;
    all_are_here.arrive_and_wait();
    if (self.rank == 0) return ExpectRebuilt(self, {2});
    const absl::Status status = AllReduce(self, arrays);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                                 "rank 0 calls shrink() as its call 0, without rank 2"));
    if (self.rank == 1) ExpectRebuilt(self, {2});
  });
}

// Each of three ranks waits for the next one, and no two of them for each other.
TEST(ThreadGroupFaultTest, ACircleOfSendsIsAnErrorOnAllItsRanks) {
  OnThreads({.size = 3}, [](Rank& self) {
    Arrays arrays;
    const absl::Status status = self.communicator->Send(
        arrays.input.data(), 4, precision::DType::kFloat32, (self.rank + 1) % 3, *self.stream);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("calls send(4 fp32, from rank"),
                                       HasSubstr(", but rank "))));
    EXPECT_EQ(self.communicator->status(), status);
  });
}

// Rank 0 waits for rank 1, and that for rank 2: no circle, and each goes on when the next one
// comes.
TEST(ThreadGroupFaultTest, AChainOfSendsIsNone) {
  OnThreads({.size = 3}, [](Rank& self) {
    Arrays arrays;
    for (int i = 0; i < 100; ++i) {
      if (self.rank > 0) {
        ASSERT_OK(self.communicator->Receive(arrays.output.data(), 4, precision::DType::kFloat32,
                                             self.rank - 1, *self.stream));
      }
      if (self.rank < 2) {
        ASSERT_OK(self.communicator->Send(arrays.input.data(), 4, precision::DType::kFloat32,
                                          self.rank + 1, *self.stream));
      }
    }
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  });
}

// The one that is waited for, and not those that wait themselves.
TEST(ThreadGroupFaultTest, ADeadlineNamesTheRankThatWaitsForNobody) {
  OnThreads({.size = 3, .timeout = absl::Seconds(1)}, [](Rank& self) {
    Arrays arrays;
    if (self.rank == 0) {
      EXPECT_FALSE(AllReduce(self, arrays).ok());
    } else if (self.rank == 1) {
      EXPECT_FALSE(self.communicator
                       ->Send(arrays.input.data(), 4, precision::DType::kFloat32, 2, *self.stream)
                       .ok());
    }
    EXPECT_THAT(AwaitEnd(self), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                         ::testing::StartsWith("rank 2 did not join")));
  });
}

TEST(ThreadGroupFaultTest, AStreamThatHasFailedIsNamedOnAllRanks) {
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

// All ranks have made the call, but the stream of one does not come to it.
TEST(ThreadGroupFaultTest, AStreamThatHangsInItsOwnWorkIsNamedOnAllRanks) {
  auto group = ThreadGroup::Create({.size = 3, .stream_timeout = absl::Seconds(1)}).value();
  const auto join = [&](int rank, device::Context& context) { return group->Join(rank, context); };
  std::vector<Arrays> all(3);
  device::Gate gate;
  std::latch named(3);
  OnRanks({.size = 3}, join, [&](Rank& self) {
    Arrays& arrays = all[static_cast<size_t>(self.rank)];
    ASSERT_OK(AllReduce(self, arrays));
    ASSERT_OK(self.stream->Synchronize());
    if (self.rank == 1) {
      ASSERT_OK(device::Block(*self.stream, gate));
    }
    ASSERT_OK(AllReduce(self, arrays));
    for (int i = 0; i < 3; ++i) AllReduce(self, arrays).IgnoreError();  // perhaps too late
    const absl::Status status = AwaitEnd(self);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 AllOf(HasSubstr("calls all_reduce(sum of 64 fp32, direct) as "
                                                 "its call 1, which the stream of rank 1 has not "
                                                 "reached within 1s"))));
    EXPECT_EQ(AllReduce(self, arrays), status);
    named.arrive_and_wait();
    gate.Open();
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(arrays.output[63], 3.0f) << "what was enqueued ends when the stream goes on";
    ExpectRebuilt(self, {});
  });
}

TEST(ThreadGroupFaultTest, StreamsThatAreAllBusyWaitForNobody) {
  auto group = ThreadGroup::Create({.size = 2, .stream_timeout = absl::Milliseconds(50)}).value();
  const auto join = [&](int rank, device::Context& context) { return group->Join(rank, context); };
  std::vector<Arrays> all(2);
  device::Gate gate;
  std::latch both_are_fine(2);
  OnRanks({.size = 2}, join, [&](Rank& self) {
    Arrays& arrays = all[static_cast<size_t>(self.rank)];
    ASSERT_OK(device::Block(*self.stream, gate));
    ASSERT_OK(AllReduce(self, arrays));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_OK(self.communicator->status());
    both_are_fine.arrive_and_wait();
    gate.Open();
    ASSERT_OK(self.stream->Synchronize());
  });
}

TEST(ThreadGroupTest, ASubgroupIsFreedWhenItsLastRankHasLeft) {
  GroupState group({.size = 3});
  auto first = group.JoinSubgroup({0, 2}, 0);
  auto second = group.JoinSubgroup({0, 2}, 0);
  EXPECT_EQ(first, second);
  EXPECT_NE(group.JoinSubgroup({1}, 0), first);
  const std::weak_ptr<GroupState> watched = first;
  first.reset();
  EXPECT_FALSE(watched.expired());
  second.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(ThreadGroupTest, ASubgroupWaitsForItsLastRankAlsoIfAnotherOneHasLeft) {
  GroupState group({.size = 2});
  group.JoinSubgroup({0, 1}, 0)->Fail(absl::UnavailableError("rank 0 has left"));
  EXPECT_THAT(group.JoinSubgroup({0, 1}, 0)->status(), StatusIs(absl::StatusCode::kUnavailable));
}

// The ranks that have joined wait for it, and those that come later must not wait at all.
TEST(ThreadGroupFaultTest, ARankThatHasNotJoinedCanEndTheGroup) {
  const auto group = ThreadGroup::Create({.size = 3}).value();
  const absl::Status wanted = absl::DataLossError("rank 1 has no data");
  absl::Status waited;
  std::latch joined(1);
  std::thread waits([&] {
    const auto context = device::Context::Create({}).value();
    const auto engine = group->Join(0, *context).value();
    joined.count_down();
    int64_t all[3] = {};
    waited = engine->AllGatherHost(HostFingerprint(HostCollective::kAllGather, 1, 0), {7}, all);
  });
  joined.wait();
  group->Abort(wanted);
  group->Abort(absl::InternalError("again"));
  waits.join();
  EXPECT_EQ(waited, wanted);
  const auto context = device::Context::Create({}).value();
  EXPECT_EQ(group->Join(2, *context).status(), wanted);
}

TEST(ThreadGroupFaultTest, TwoRanksWithOneNumber) {
  const RanksOptions options = {.size = 2};
  auto group = ThreadGroup::Create({.size = 2}).value();
  auto context = CreateRankContext(0, options);
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
  EXPECT_THAT(ThreadGroup::Create({.size = 1, .timeout = absl::ZeroDuration()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("timeout is 0,")));
  EXPECT_THAT(ThreadGroup::Create({.size = 1, .stream_timeout = absl::Seconds(-1)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stream_timeout -")));
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
      ASSERT_OK(self.communicator->AllReduce(data, arrays.output.data(), 256,
                                             precision::DType::kFloat32, {}, *self.stream));
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

TEST(ThreadGroupFaultTest, ALateProducerIsWaitedForAndAForgottenWaitIsReported) {
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
