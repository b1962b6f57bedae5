// Host channels, on every engine.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"

namespace brigade::collectives {
namespace {

using ::brigade::device::SteadyTime;
using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRounds = 50;

struct EngineCase {
  const char* name;
  CreateEngineFn (*engines)(const RanksOptions& options);
};

class HostChannelTest : public NcclTest, public ::testing::WithParamInterface<EngineCase> {
 protected:
  // Of 3 ranks, whose calls have a minute.
  void On(const std::function<void(Rank&)>& body) {
    const RanksOptions options = {.size = 3};
    OnRanks(options, GetParam().engines(options), body);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Engines, HostChannelTest,
    ::testing::Values(EngineCase{"threads", ThreadEngines},
                      EngineCase{"gloo", testing::GlooEngines},
                      EngineCase{"nccl", [](const auto& options) { return NcclEngines(options); }}),
    [](const auto& info) { return std::string(info.param.name); });

std::unique_ptr<Communicator> ChannelOf(Communicator& communicator) {
  auto channel = communicator.CreateHostChannel();
  EXPECT_OK(channel);
  return channel.ok() ? *std::move(channel) : nullptr;
}

void ExpectGathers(Communicator& channel, int64_t rounds = 1) {
  for (int64_t round = 0; round < rounds; ++round) {
    auto all = channel.AllGatherHost({10 * round + channel.rank()});
    ASSERT_OK(all);
    ASSERT_THAT(*all, ElementsAre(10 * round, 10 * round + 1, 10 * round + 2));
  }
}

void ExpectAdds(Communicator& communicator, device::Stream& stream) {
  std::vector<float> array(64, 1.0f);
  ASSERT_OK(communicator.AllReduce(array, absl::MakeSpan(array), {}, stream));
  ASSERT_OK(communicator.Synchronize(stream));
  ASSERT_EQ(array.back(), 3.0f);
}

TEST_P(HostChannelTest, ValuesGoRoundBesideCallsOfTheCommunicator) {
  On([](Rank& self) {
    const auto channel = ChannelOf(*self.communicator);
    ASSERT_NE(channel, nullptr);
    EXPECT_EQ(channel->rank(), self.rank);
    EXPECT_EQ(channel->size(), self.size);
    std::thread beside([&] { ExpectGathers(*channel, kRounds); });
    for (int64_t round = 0; round < kRounds; ++round) {
      ExpectAdds(*self.communicator, *self.stream);
      auto all = self.communicator->AllGatherHost({-round});
      EXPECT_OK(all);
      EXPECT_EQ(all.value_or(std::vector<int64_t>()), std::vector<int64_t>(3, -round));
      if (round % 10 != 0) continue;
      EXPECT_OK(self.communicator->Split(self.rank % 2, 0));
    }
    beside.join();
  });
}

TEST_P(HostChannelTest, AnAbortOnOneRankEndsTheWaitsOfTheOthersAndNothingElse) {
  On([](Rank& self) {
    const auto channel = ChannelOf(*self.communicator);
    const auto other = ChannelOf(*self.communicator);
    ASSERT_TRUE(channel != nullptr && other != nullptr);
    ExpectGathers(*channel);
    self.AwaitOthers();
    const SteadyTime begin = SteadyTime::Now();
    if (self.rank == 1) {
      absl::SleepFor(absl::Milliseconds(50));  // the others wait by now
      channel->Abort(absl::CancelledError("no more"));
    }
    const auto ended = StatusIs(absl::StatusCode::kCancelled, HasSubstr("no more"));
    EXPECT_THAT(channel->AllGatherHost({1}), ended);
    EXPECT_THAT(channel->status(), ended);
    EXPECT_LT(SteadyTime::Now() - begin, absl::Seconds(30)) << "half of the ranks' timeout";
    ExpectGathers(*other);
    ExpectAdds(*self.communicator, *self.stream);
    self.AwaitOthers();
  });
}

TEST_P(HostChannelTest, AnAbortFromAnotherThreadEndsTheOwnWait) {
  On([](Rank& self) {
    const auto channel = ChannelOf(*self.communicator);
    ASSERT_NE(channel, nullptr);
    // Rank 0 does not come.
    const auto ended = StatusIs(absl::StatusCode::kCancelled, HasSubstr("no more"));
    std::thread beside([&] {
      if (self.rank == 0) return;
      EXPECT_THAT(channel->AllGatherHost({1}), ended);
    });
    self.AwaitOthers();
    if (self.rank == 1) channel->Abort(absl::CancelledError("no more"));
    beside.join();
    self.AwaitOthers();
  });
}

TEST_P(HostChannelTest, GoesOnWhenTheCommunicatorIsAborted) {
  On([](Rank& self) {
    const auto channel = ChannelOf(*self.communicator);
    ASSERT_NE(channel, nullptr);
    std::thread beside([&] { ExpectGathers(*channel, kRounds); });
    self.AwaitOthers();
    self.communicator->Abort(absl::CancelledError("enough"));
    EXPECT_THAT(self.communicator->CreateHostChannel(),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
    beside.join();
    EXPECT_OK(channel->status());
    ExpectGathers(*channel);
    self.AwaitOthers();
  });
}

TEST_P(HostChannelTest, EitherMayBeDestroyedFirst) {
  On([](Rank& self) {
    auto channel = ChannelOf(*self.communicator);
    auto shorter = ChannelOf(*self.communicator);
    ASSERT_TRUE(channel != nullptr && shorter != nullptr);
    ExpectGathers(*shorter);
    shorter.reset();
    ExpectAdds(*self.communicator, *self.stream);
    self.AwaitOthers();
    std::thread beside([&] { ExpectGathers(*channel, kRounds); });
    self.communicator.reset();
    beside.join();
    // Also for what it makes, nothing of the communicator is needed.
    const auto of_channel = ChannelOf(*channel);
    ASSERT_NE(of_channel, nullptr);
    ExpectGathers(*of_channel);
    self.AwaitOthers();
  });
}

TEST_P(HostChannelTest, ARankThatIsGoneEndsTheWaitsOfTheOthers) {
  On([](Rank& self) {
    auto channel = ChannelOf(*self.communicator);
    ASSERT_NE(channel, nullptr);
    ExpectGathers(*channel);
    self.AwaitOthers();
    if (self.rank == 1) {
      channel.reset();
    } else {
      EXPECT_THAT(channel->AllGatherHost({1}),
                  StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1")));
    }
    ExpectAdds(*self.communicator, *self.stream);
    self.AwaitOthers();
  });
}

TEST_P(HostChannelTest, CallsOnStreamsAreRefusedAndEndNothing) {
  On([](Rank& self) {
    const auto channel = ChannelOf(*self.communicator);
    ASSERT_NE(channel, nullptr);
    const auto of_channel = ChannelOf(*channel);
    auto split = channel->Split(0, 0);
    ASSERT_OK(split);
    auto shrunk = channel->Shrink({});
    ASSERT_OK(shrunk);
    for (Communicator* const each :
         {channel.get(), of_channel.get(), split->get(), shrunk->get()}) {
      const auto is_refused = [](const char* call) {
        return StatusIs(absl::StatusCode::kFailedPrecondition,
                        HasSubstr(absl::StrCat(call, ": a host channel has no calls on streams")));
      };
      // One rank alone: the others do not hear of it.
      if (self.rank == 1) {
        std::vector<float> array(64);
        const auto span = absl::MakeSpan(array);
        EXPECT_THAT(each->AllReduce(array, span, {}, *self.stream), is_refused("all_reduce"));
        EXPECT_THAT(each->Send(absl::MakeConstSpan(array), 0, *self.stream), is_refused("send"));
        EXPECT_THAT(each->Receive(span, 0, *self.stream), is_refused("send"));
        EXPECT_THAT(each->Barrier(*self.stream), is_refused("barrier"));
        EXPECT_THAT(each->Reserve({.kind = CollectiveKind::kAllGather, .count = 8}),
                    is_refused("all_gather"));
      }
      EXPECT_OK(each->status());
      ExpectGathers(*each);
    }
    EXPECT_OK(self.stream->Synchronize());
  });
}

TEST_P(HostChannelTest, RanksThatDoNotAllMakeOneAreNamed) {
  On([](Rank& self) {
    const absl::Status status = self.rank == 2 ? self.communicator->Split(0, 0).status()
                                               : self.communicator->CreateHostChannel().status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("calls create_host_channel(")));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("calls split(")));
  });
}

}  // namespace
}  // namespace brigade::collectives
