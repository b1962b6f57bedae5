// From what a launcher says to a sum, on every backend.

#include "brigade/collectives/init.h"

#include <barrier>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kSize = 3;

void SetEnvironment(int rank, int port) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(kSize).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

// A rank as a user writes it, in a process whose environment is set.
absl::Status SumOnes(int rank, const InitOptions& options) {
  BRIGADE_ASSIGN_OR_RETURN(auto launch_info, LaunchInfoFromEnvironment());
  if (launch_info.rank != rank) return testing::Wrong("the environment is another rank's");
  const auto context = CreateRankContext(rank, {});
  Rank self = {rank, launch_info.size, nullptr, context->CreateStream("compute").value(), nullptr};
  BRIGADE_ASSIGN_OR_RETURN(auto world, Init(launch_info, options, *context));
  testing::Arrays arrays;
  return testing::AddOnes(*world, self, arrays, 100);
}

TEST(InitTest, ProcessesFindEachOtherAtTheMasterOfTheEnvironment) {
  const int port = testing::FreePort();
  for (const testing::Report& report : testing::RunRanks(kSize, [&](int rank, testing::Fault&) {
         SetEnvironment(rank, port);
         return SumOnes(rank, {});
       })) {
    EXPECT_OK(report.status);
  }
}

TEST(InitTest, ProcessesFindEachOtherInAFolder) {
  InitOptions options;
  options.rendezvous_folder = ::testing::TempDir() + "/init_test_rendezvous";
  for (const testing::Report& report : testing::RunRanks(kSize, [&](int rank, testing::Fault&) {
         SetEnvironment(rank, 1);  // where nothing listens
         return SumOnes(rank, options);
       })) {
    EXPECT_OK(report.status);
  }
}

// Rank 1 has another secret than rank 0, though it can read the folder; and it comes late.
TEST(InitTest, ProcessesOfAFolderConnectByTheirSecretUntilTheOneDeadline) {
  InitOptions options;
  options.rendezvous_folder = ::testing::TempDir() + "/init_test_secrets";
  options.connect_timeout = 8 * testing::kDeadline;
  const auto reports = testing::RunRanks(2, [&](int rank, testing::Fault& fault) -> absl::Status {
    SetEnvironment(rank, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("BRIGADE_JOB_SECRET", std::string(64, static_cast<char>('1' + rank)).c_str(), 1);
    if (rank == 0) fault.Begin();
    if (rank == 1) absl::SleepFor(0.5 * options.connect_timeout);
    return SumOnes(rank, options);
  });
  EXPECT_THAT(reports[0].status,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("rank 1 joined 'world' but did not connect within ")));
  EXPECT_LT(absl::Seconds(reports[0].seconds), 1.5 * options.connect_timeout);
  EXPECT_FALSE(reports[1].status.ok());
}

TEST(InitTest, NamesARankThatIsNotStarted) {
  const int port = testing::FreePort();
  InitOptions options;
  options.connect_timeout = testing::kDeadline;
  const auto reports = testing::RunRanks(kSize, [&](int rank, testing::Fault&) {
    SetEnvironment(rank, port);
    return rank == 1 ? absl::OkStatus() : SumOnes(rank, options);
  });
  // The time of rank 2 is over at the same moment: it may count as absent too.
  const auto named =
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               ::testing::AnyOf(HasSubstr("rank 1 did"), HasSubstr("ranks 1 and 2 did")));
  EXPECT_THAT(reports[0].status, named);
  EXPECT_THAT(reports[2].status, named);
}

TEST(InitTest, ProcessesVerifyTheirMessagesWhereTheEnvironmentSaysSo) {
  const auto with = [](const std::vector<std::string>& value_of_rank) {
    const int port = testing::FreePort();
    return testing::RunRanks(kSize, [&](int rank, testing::Fault&) {
      SetEnvironment(rank, port);
      setenv("BRIGADE_VERIFY_MESSAGES", value_of_rank[static_cast<size_t>(rank)].c_str(), 1);
      return SumOnes(rank, {});
    });
  };
  for (const testing::Report& report : with({"1", "1", "1"})) EXPECT_OK(report.status);
  for (const testing::Report& report : with({"0", "", "0"})) EXPECT_OK(report.status);
  // So that it is known to be on.
  for (const testing::Report& report : with({"1", "0", "1"})) {
    EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("verifies what messages carry, but rank ")));
  }
  for (const testing::Report& report : with({"0", "1", "0"})) {
    EXPECT_THAT(report.status,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ContainsRegex("rank 1 verifies what messages carry, but rank [02] does")));
  }
  for (const char* const value : {"yes", "2"}) {
    for (const testing::Report& report : with({value, value, value})) {
      EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr(absl::StrCat("BRIGADE_VERIFY_MESSAGES is \"",
                                                                 value, "\"; it must be 0 or 1"))));
    }
  }
}

TEST(InitTest, AProcessAloneNeedsNoOther) {
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  EXPECT_OK(SumOnes(0, {}));
}

// Runs body(Rank&) in a thread for each rank, with the communicator that Init makes of
// options_of(launch_info).
void OnInitialized(int size, const std::function<InitOptions()>& options_of,
                   const std::function<void(Rank&)>& body) {
  const int port = testing::FreePort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Rank self = {rank, size, CreateRankContext(rank, {}), nullptr, nullptr};
      self.stream = self.context->CreateStream("compute").value();
      LaunchInfo launch_info;
      launch_info.rank = rank;
      launch_info.size = size;
      launch_info.master_port = port;
      auto world = Init(launch_info, options_of(), *self.context);
      ASSERT_OK(world);
      self.communicator = *std::move(world);
      body(self);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void AddOnesAndSplit(Rank& self) {
  std::vector<float> ones(64, 1.0f), sums(64);
  ASSERT_OK(self.communicator->AllReduce(ones, absl::MakeSpan(sums), {}, *self.stream));
  ASSERT_OK(self.stream->Synchronize());
  EXPECT_EQ(sums[63], static_cast<float>(self.size));
  auto part = self.communicator->Split(self.rank == 0 ? 1 : 0, 0);
  ASSERT_OK(part);
  ASSERT_OK((*part)->AllReduce(ones, absl::MakeSpan(sums), {}, *self.stream));
  ASSERT_OK(self.stream->Synchronize());
  EXPECT_EQ(sums[63], self.rank == 0 ? 1.0f : static_cast<float>(self.size - 1));
}

TEST(InitTest, ThreadsOfAGroupAddAndSplit) {
  const auto group = ThreadGroup::Create({.size = kSize}).value();
  OnInitialized(
      kSize, [&] { return InitOptions{.group = group}; }, AddOnesAndSplit);
}

InitOptions WithStandIn() {
  InitOptions options;
  options.backend = Backend::kNccl;
  options.nccl = EmulatedNccl::Api();
  return options;
}

class InitNcclTest : public NcclTest {};

TEST_F(InitNcclTest, RanksAddSplitAndNameCallsThatDiffer) {
  OnInitialized(kSize, WithStandIn, [](Rank& self) {
    AddOnesAndSplit(self);
    std::vector<float> ones(64, 1.0f), sums(64);
    // One rank may learn of the others' call before its own is enqueued.
    self.communicator->Broadcast(ones, absl::MakeSpan(sums), self.rank == 1 ? 2 : 0, *self.stream)
        .IgnoreError();
    while (self.communicator->status().ok()) std::this_thread::yield();
    EXPECT_THAT(self.communicator->status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 0 calls broadcast(64 fp32, from rank 0) as its call 2, "
                                   "but rank 1 calls broadcast(64 fp32, from rank 2)")));
    ASSERT_OK(self.stream->Synchronize());
    auto again = self.communicator->Shrink({});
    ASSERT_OK(again);
    ASSERT_OK((*again)->AllReduce(ones, absl::MakeSpan(sums), {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(sums[63], 3.0f);
    ASSERT_OK((*again)->Split(0, 0).status());  // no rank leaves before all have their sums
  });
}

// Rank 1 has waited on the side channel for the whole timeout when rank 0's send is late, and is
// still there.
TEST_F(InitNcclTest, ASendThatMeetsABarrierIsNamedWithIt) {
  std::barrier both_have_heard(2);
  const auto impatient = [] {
    InitOptions options = WithStandIn();
    options.timeout = 2 * testing::kDeadline;
    return options;
  };
  OnInitialized(2, impatient, [&](Rank& self) {
    std::vector<float> ones(64, 1.0f);
    if (self.rank == 0) {
      absl::SleepFor(absl::Milliseconds(50));
      EXPECT_OK(self.communicator->Send(absl::MakeConstSpan(ones), 1, *self.stream));
    } else {
      EXPECT_OK(self.communicator->Barrier(*self.stream));
    }
    while (self.communicator->status().ok()) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_THAT(self.communicator->status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 0 calls send(64 fp32, from rank 0)"),
                               HasSubstr("rank 1 calls barrier()"))));
    self.stream->Synchronize().IgnoreError();
    both_have_heard.arrive_and_wait();  // the end of one could reach the other first
  });
}

// With the context that Init made for the side channel.
TEST_F(InitNcclTest, AHostChannelAndWhatItMakesOutliveTheCommunicator) {
  OnInitialized(kSize, WithStandIn, [](Rank& self) {
    auto channel = self.communicator->CreateHostChannel();
    ASSERT_OK(channel);
    self.communicator.reset();
    auto of_channel = (*channel)->CreateHostChannel();
    ASSERT_OK(of_channel);
    channel->reset();
    const auto all = (*of_channel)->AllGatherHost({self.rank});
    ASSERT_OK(all);
    EXPECT_THAT(*all, ::testing::ElementsAre(0, 1, 2));
    ASSERT_OK((*of_channel)->Split(0, 0));  // no rank leaves before all have theirs
  });
}

TEST_F(InitNcclTest, ARankAloneNeedsNoOther) {
  OnInitialized(1, WithStandIn, [](Rank& self) {
    std::vector<float> a(64, 1.0f);
    ASSERT_OK(self.communicator->AllReduce(a, absl::MakeSpan(a), {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(a[0], 1.0f);
  });
}

TEST(InitTest, RefusesOptionsThatDoNotFit) {
  const auto context = CreateRankContext(0, {});
  const auto invalid = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(Init({}, {.backend = Backend::kThreads}, *context),
              invalid("the threads backend needs InitOptions::group"));
  EXPECT_THAT(
      Init({}, {.backend = Backend::kGloo, .group = ThreadGroup::Create({}).value()}, *context),
      invalid("the gloo backend does not take InitOptions::group"));
  EXPECT_THAT(Init({.size = 8}, {.group = ThreadGroup::Create({.size = 4}).value()}, *context),
              invalid("LaunchInfo::size is 8, InitOptions::group has 4 ranks"));
  EXPECT_THAT(Init({}, {.group = ThreadGroup::Create({}).value(), .interface = "eth0"}, *context),
              invalid("the threads backend does not take InitOptions::interface"));
  EXPECT_THAT(Init({}, {.backend = Backend::kGloo, .verify_collectives = false}, *context),
              invalid("the gloo backend does not take InitOptions::verify_collectives"));
  EXPECT_THAT(Init({}, {.backend = static_cast<Backend>(9)}, *context),
              invalid("there is no backend 9"));
}

TEST(InitTest, ReadsTheNamesOfBackends) {
  for (const char* name : {"auto", "threads", "gloo", "nccl"}) {
    EXPECT_EQ(Name(ParseBackend(name).value()), name);
  }
  EXPECT_THAT(
      ParseBackend("mpi"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("the backend is \"mpi\"; it must be auto, threads, gloo or nccl")));
}

}  // namespace
}  // namespace brigade::collectives
