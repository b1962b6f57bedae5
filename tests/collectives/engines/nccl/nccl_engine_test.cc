// The NCCL engine on a stand-in for NCCL: what every engine must do, and what is its own.

#include "brigade/collectives/engines/nccl/nccl_engine.h"

#include <barrier>
#include <vector>

#include "absl/time/clock.h"
#include "brigade/collectives/algorithms/program.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/bits.h"
#include "brigade/tests/collectives/conformance.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

// A communicator of a new group, ready.
NcclComm CreateComm(const NcclUniqueId& id, int rank, int size) {
  const NcclApi api = EmulatedNccl::Api();
  NcclComm comm = nullptr;
  NcclConfig config;
  api.comm_init_rank_config(&comm, size, id, rank, &config);
  NcclResult ready = NcclResult::kInProgress;
  while (ready == NcclResult::kInProgress) api.comm_get_async_error(comm, &ready);
  return comm;
}

class NcclConformance : public NcclTest, public ::testing::WithParamInterface<int> {};

TEST_P(NcclConformance, EveryOperationOfEveryType) {
  const RanksOptions options = {.size = GetParam()};
  Conform(options, NcclEngines(options), InterestingCounts(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, NcclConformance, ::testing::ValuesIn(WorldSizes()));

TEST_F(NcclTest, EveryCallOnNodes) {
  for (const std::vector<int>& nodes : {std::vector<int>{2, 2}, {2, 2, 2}, {1, 1, 1, 1, 1}}) {
    RanksOptions options = {.size = 0, .ranks_of_node = nodes};
    for (const int ranks : nodes) options.size += ranks;
    ConformOnNodes(options, NcclEngines(options), {1, 64 * 6 + 1});
  }
}

TEST_F(NcclTest, SendsAndAllocatesWhatIsSaidBeforehand) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 2}}) {
    RanksOptions options = {.size = 0, .ranks_of_node = nodes};
    for (const int ranks : nodes) options.size += ranks;
    ConformTrafficAndMemory(options, NcclEngines(options), EngineKind::kNccl);
  }
}

// The stand-in's own sums have other bits than these.
TEST_F(NcclTest, DirectSumsAreAddedInAscendingOrderAndRoundedOnce) {
  for (const int size : {2, 3, 5}) {
    const RanksOptions options = {.size = size};
    OnRanks(options, NcclEngines(options), [&](Rank& self) {
      constexpr int64_t kCount = 1003;
      std::vector<precision::BFloat16> input(kCount), output(kCount);
      for (int64_t i = 0; i < kCount; ++i) {
        input[i] = precision::BFloat16(UnevenValue(self.rank, i));
      }
      ASSERT_OK(self.communicator->AllReduce(input.data(), output.data(), kCount,
                                             precision::DType::kBFloat16, {}, *self.stream));
      ASSERT_OK(self.stream->Synchronize());
      for (int64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(static_cast<float>(output[i]), RoundedOnce<precision::BFloat16>(size, i)) << i;
      }
      ASSERT_OK(self.communicator->Barrier(*self.stream));
      ASSERT_OK(self.stream->Synchronize());
    });
  }
}

// An all-reduce of values[rank] as T, in place, gives the specification's bits and sends what
// is said beforehand.
template <typename T>
void ExpectSumOf(const std::vector<std::vector<float>>& values, Rank& self) {
  const auto count = static_cast<int64_t>(values[0].size());
  Communicator& group = *self.communicator;
  const auto signature = group.Resolve(
      {.kind = CollectiveKind::kAllReduce, .dtype = precision::kDType<T>, .count = count});
  ASSERT_OK(signature);
  const auto sent = [&] {
    int64_t bytes = 0;
    for (int to = 0; to < self.size; ++to) bytes += group.sent_bytes(to);
    return bytes;
  };
  const int64_t sent_before = sent();
  std::vector<T> array(values[0].size());
  for (size_t i = 0; i < array.size(); ++i) array[i] = T(values[self.rank][i]);
  ASSERT_OK(group.AllReduce(array, absl::MakeSpan(array), {}, *self.stream));
  ASSERT_OK(self.stream->Synchronize());
  EXPECT_EQ(sent() - sent_before, WireBytes(*signature, self.rank, self.size));
  for (size_t i = self.rank % 8; i < array.size(); i += 8) {
    float sum = Rounded<T>(values[0][i]);
    for (int rank = 1; rank < self.size; ++rank) sum += Rounded<T>(values[rank][i]);
    ASSERT_EQ(static_cast<float>(array[i]), Rounded<T>(sum)) << i << ", rank " << self.rank;
  }
}

TEST_F(NcclTest, AddsInPassesBetweenMoreRanksThanAKernelTakes) {
  constexpr int kSize = 66;
  constexpr int64_t kCount = 16 * kSize + 5;
  const RanksOptions options = {.size = kSize};
  std::vector<std::vector<float>> values(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    for (int64_t i = 0; i < kCount; ++i) values[rank].push_back(UnevenValue(rank, i));
  }
  NcclUniqueId id = {};
  ASSERT_EQ(EmulatedNccl::Api().get_unique_id(&id), NcclResult::kSuccess);
  std::vector<NcclComm> comms(kSize);
  // A side channel of threads would not have so many ranks.
  const auto create = [&](int rank, device::Context& context) {
    comms[rank] = CreateComm(id, rank, kSize);
    return BorrowNcclEngine(EmulatedOptions(options), comms[rank], /*side=*/nullptr, context);
  };
  OnRanks(options, create, [&](Rank& self) {
    const auto allocated = [&] {
      return self.context->memory_stats().current_bytes(device::Purpose::kCommunication);
    };
    const int64_t before = allocated();
    const CollectiveSignature signature = {
        .kind = CollectiveKind::kAllReduce, .dtype = kFloat32, .count = kCount};
    ASSERT_OK(self.communicator->Reserve(signature));
    // Blocks of 32, 16 and 5 elements: 65 of them land, each in a whole vector, and one is added.
    const int64_t block = self.rank == 0 ? 32 : self.rank < kSize - 1 ? 16 : 5;
    const Workspace wanted = {0, (kSize - 1) * 256, block * 4};
    EXPECT_EQ(self.communicator->WorkspaceFor(signature).value(), wanted);
    EXPECT_EQ(allocated() - before, wanted.bytes());
    ExpectSumOf<float>(values, self);
    ExpectSumOf<precision::BFloat16>(values, self);
    EXPECT_EQ(allocated() - before, wanted.bytes());
  });
  for (const NcclComm comm : comms) EmulatedNccl::Api().comm_destroy(comm);
}

TEST_F(NcclTest, TakesNcclsOwnCollectivesWhereTheyKeepThePromise) {
  const RanksOptions options = {.size = 2};
  OnRanks(options, NcclEngines(options), [](Rank& self) {
    std::vector<float> a(64, 1.0f), b(64);
    std::vector<int32_t> c(64, 1), d(64);
    const auto all_reduce = [&](kernels::ReduceOp op, Algorithm algorithm) {
      ASSERT_OK(self.communicator->AllReduce(a.data(), b.data(), 64, kFloat32,
                                             {op, By(algorithm).reduction, algorithm},
                                             *self.stream));
    };
    all_reduce(kernels::ReduceOp::kSum, Algorithm::kDirect);
    all_reduce(kernels::ReduceOp::kSum, Algorithm::kRing);
    all_reduce(kernels::ReduceOp::kSum, Algorithm::kNative);
    EXPECT_THAT(
        self.communicator->AllReduce(
            a.data(), b.data(), 64, kFloat32,
            {kernels::ReduceOp::kMax, Reduction::kRoundedPerHop, Algorithm::kNative}, *self.stream),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 "all_reduce: the engine has no native collective for the max of fp32"));
    ASSERT_OK(self.communicator->AllReduce(
        c.data(), d.data(), 64, precision::DType::kInt32,
        {kernels::ReduceOp::kMax, Reduction::kRoundedPerHop, Algorithm::kNative}, *self.stream));
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  });
  EXPECT_EQ(EmulatedNccl::Calls("ncclAllReduce"), 2 * 3);  // the native sum, integers, the barrier
}

TEST_F(NcclTest, CountsWhatProgramsWouldSend) {
  for (const int size : {1, 2, 3, 8}) {
    for (const int64_t count : {0, 1, 15, 16, 1000, 1003}) {
      for (const CollectiveKind kind :
           {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
            CollectiveKind::kAllToAll, CollectiveKind::kShift, CollectiveKind::kBroadcast,
            CollectiveKind::kBarrier}) {
        for (const Algorithm algorithm :
             {Algorithm::kDirect, Algorithm::kRing, Algorithm::kNative}) {
          CollectiveSignature signature = {kind, algorithm, precision::DType::kFloat32, {}, count};
          signature.root = size / 2;
          for (int rank = 0; rank < size; ++rank) {
            std::vector<int64_t> wanted(static_cast<size_t>(size)), sent(wanted);
            CountWireElements(signature, rank, absl::MakeSpan(wanted));
            ForEachSent(signature, rank, size, [&](int to, int64_t elements) {
              sent[static_cast<size_t>(to)] += elements;
            });
            EXPECT_EQ(sent, wanted) << ToString(signature) << ", rank " << rank << " of " << size;
          }
        }
      }
    }
  }
  const RanksOptions options = {.size = 2};
  OnRanks(options, NcclEngines(options), [](Rank& self) {
    std::vector<float> a(64, 1.0f), b(64);
    Communicator& group = *self.communicator;
    ASSERT_OK(group.AllReduce(a.data(), b.data(), 64, kFloat32, {}, *self.stream));
    EXPECT_EQ(group.sent_bytes(1 - self.rank), 64 * 4);
    ASSERT_OK(self.rank == 0 ? group.Send(a.data(), 10, kFloat32, 1, *self.stream)
                             : group.Receive(b.data(), 10, kFloat32, 0, *self.stream));
    EXPECT_EQ(group.sent_bytes(1 - self.rank), self.rank == 0 ? 74 * 4 : 64 * 4);
    ASSERT_OK(self.stream->Synchronize());
  });
}

TEST_F(NcclTest, TheHostWaitsForNoDeviceAndNoRaceIsSeen) {
  device::RaceChecker checker;
  const RanksOptions options = {
      .size = 3, .random_delay = {.seed = 3, .max_delay_us = 200}, .race_checker = &checker};
  OnRanks(options, NcclEngines(options), [](Rank& self) {
    auto other = self.context->CreateStream("other").value();
    std::vector<float> a(300, 1.0f), b(300);
    int64_t waits = 0;
    for (int i = 0; i < 30; ++i) {
      const ReduceOptions sum = By(i % 4 < 2 ? Algorithm::kDirect : Algorithm::kRing);
      device::Stream& stream = i % 2 == 0 ? *self.stream : *other;
      ASSERT_OK(self.communicator->ReduceScatter(a.data(), b.data(), 100, kFloat32, sum, stream));
      if (i == 4) waits = self.context->host_waits();  // scratch is there
    }
    EXPECT_EQ(self.context->host_waits(), waits);
    ASSERT_OK(self.stream->Synchronize());
    ASSERT_OK(other->Synchronize());
    EXPECT_EQ(b[99], 3.0f);
  });
  EXPECT_THAT(checker.reports(), ::testing::IsEmpty());
}

TEST_F(NcclTest, SplitsByNcclsOwnSplitAlsoForRanksThatGetNothing) {
  ConformSplit(NcclEngines({.size = 5}));
  EXPECT_EQ(EmulatedNccl::Calls("ncclCommSplit"), 5 + 4 + 5);
  EXPECT_EQ(EmulatedNccl::Calls("ncclCommInitRankConfig"), 5);
}

TEST_F(NcclTest, AHostChannelMakesNoCommunicatorOfNccl) {
  OnRanks({.size = 3}, NcclEngines({.size = 3}), [](Rank& self) {
    ASSERT_OK(self.communicator->AllGatherHost({}));  // all have been made
    const int live = EmulatedNccl::LiveComms();
    auto channel = self.communicator->CreateHostChannel();
    ASSERT_OK(channel);
    ASSERT_OK((*channel)->Split(0, 0));
    auto all = (*channel)->AllGatherHost({self.rank});
    ASSERT_OK(all);
    EXPECT_THAT(*all, ::testing::ElementsAre(0, 1, 2));
    EXPECT_EQ(EmulatedNccl::LiveComms(), live);
    self.AwaitOthers();
  });
  EXPECT_EQ(EmulatedNccl::Calls("ncclCommInitRankConfig"), 3);
  EXPECT_EQ(EmulatedNccl::Calls("ncclCommSplit"), 0);
}

TEST_F(NcclTest, ASplitWithoutACommunicatorIsAnError) {
  const RanksOptions options = {.size = 2};
  const auto split_nothing = [](int, NcclOptions& nccl) {
    nccl.api.comm_split = [](NcclComm comm, int, int key, NcclComm* child, NcclConfig* config) {
      return EmulatedNccl::Api().comm_split(comm, /*color=*/-1, key, child, config);
    };
  };
  OnRanks(options, NcclEngines(options, split_nothing), [](Rank& self) {
    const auto split = self.communicator->Split(0, 0);
    EXPECT_THAT(split, StatusIs(absl::StatusCode::kInternal,
                                HasSubstr("ncclCommSplit succeeded without a communicator")));
    EXPECT_EQ(self.communicator->status(), split.status());
  });
}

TEST_F(NcclTest, RunsInRegisteredMemory) {
  ConformRegistration({.size = 3}, NcclEngines({.size = 3}));
  // At its end each rank has a registration, which goes with the ncclComm_t that is aborted.
  EXPECT_EQ(EmulatedNccl::Calls("ncclCommRegister"), 3 * 5);
  EXPECT_EQ(EmulatedNccl::Calls("ncclCommDeregister"), 3 * 4);
}

TEST_F(NcclTest, ARegistrationEndsAfterTheCallsThatAreEnqueued) {
  OnRanks({.size = 2}, NcclEngines({.size = 2}), [](Rank& self) {
    std::vector<float> array(64, 1.0f);
    auto registration = self.communicator->Register(array.data(), 256);
    ASSERT_OK(registration);
    EXPECT_EQ(EmulatedNccl::RegisteredBytes(self.rank), 256);
    ASSERT_OK(self.stream->Enqueue({"late", {}}, [](device::ThreadPool&) {
      absl::SleepFor(absl::Milliseconds(30));
      return absl::OkStatus();
    }));
    ASSERT_OK(self.communicator->AllReduce(array, absl::MakeSpan(array), {}, *self.stream));
    *registration = Registration();
    EXPECT_EQ(array.back(), 2.0f);
    EXPECT_EQ(EmulatedNccl::RegisteredBytes(self.rank), 0);
  });
}

TEST_F(NcclTest, ACaptureIsNotComparedAndHasNoDeadline) {
  const RanksOptions options = {.size = 2, .timeout = absl::Seconds(1)};
  std::vector<float> a(64, 1.0f);
  OnRanks(options, NcclEngines(options), [&](Rank& self) {
    std::vector<float> b(64);
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
    ASSERT_OK(self.communicator->Split(0, 0).status());  // both are here
    EmulatedNccl::SetCapturing(true);
    ASSERT_OK(self.communicator->AllReduce(a.data(), b.data(), 63 + self.rank, kFloat32, {},
                                           *self.stream));
    absl::SleepFor(1.2 * options.timeout);
    ASSERT_OK(self.communicator->status());
    EmulatedNccl::SetCapturing(false);
    ASSERT_OK(self.communicator->Split(0, 0).status());
    ASSERT_OK(self.communicator->AllReduce(a.data(), b.data(), 64, kFloat32, {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(b[63], 2.0f);
    ASSERT_OK(self.communicator->Split(0, 0).status());
    // What is not captured is compared as before.
    static_cast<void>(self.communicator->AllReduce(a.data(), b.data(), 63 + self.rank, kFloat32, {},
                                                   *self.stream));
    while (self.communicator->status().ok()) std::this_thread::yield();
    EXPECT_THAT(self.communicator->status(), StatusIs(absl::StatusCode::kInvalidArgument));
    ASSERT_OK(self.stream->Synchronize());  // an aborted call ends without an error
  });
}

TEST_F(NcclTest, ABorrowedCommunicatorStaysItsOwners) {
  const NcclApi api = EmulatedNccl::Api();
  auto group = ThreadGroup::Create({2}).value();
  std::barrier both_have_split(2);
  NcclUniqueId id = {};
  ASSERT_EQ(api.get_unique_id(&id), NcclResult::kSuccess);
  const auto rank_main = [&](int rank) {
    auto context = CreateRankContext(rank, {});
    auto stream = context->CreateStream("compute").value();
    const NcclComm comm = CreateComm(id, rank, 2);
    for (const bool with_side : {false, true}) {
      std::unique_ptr<Engine> side;
      if (with_side) side = group->Join(rank, *context).value();
      auto engine = BorrowNcclEngine(EmulatedOptions({}), comm, std::move(side), *context);
      ASSERT_OK(engine);
      auto communicator = Communicator::Create(*std::move(engine), *context).value();
      EXPECT_EQ(communicator->rank(), rank);
      std::vector<float> a(64, 1.0f), b(64);
      ASSERT_OK(communicator->AllReduce(a.data(), b.data(), 64, kFloat32, {}, *stream));
      ASSERT_OK(stream->Synchronize());
      EXPECT_EQ(b[0], 2.0f);
      const auto split = communicator->Split(0, 0);
      const auto channel = communicator->CreateHostChannel();
      if (with_side) {
        EXPECT_OK(split);
        EXPECT_OK(channel);
        both_have_split.arrive_and_wait();  // an abort would reach the other in its split
        communicator->Abort(absl::CancelledError("enough"));
      } else {
        EXPECT_THAT(split, StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("needs a side channel")));
        EXPECT_THAT(channel, StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("create_host_channel: a borrowed communicator "
                                                "needs a side channel")));
      }
    }
    EXPECT_EQ(api.comm_destroy(comm), NcclResult::kSuccess);
  };
  std::thread one([&] { rank_main(1); });
  rank_main(0);
  one.join();
  EXPECT_EQ(EmulatedNccl::Calls("ncclCommRevoke"), 2);
}

TEST_F(NcclTest, ABorrowedCommunicatorMayStillBeInTheMaking) {
  const NcclApi api = EmulatedNccl::Api();
  NcclUniqueId id = {};
  ASSERT_EQ(api.get_unique_id(&id), NcclResult::kSuccess);
  std::vector<NcclComm> comms(2);
  const auto create = [&](int rank, device::Context& context) {
    if (rank == 1) absl::SleepFor(absl::Milliseconds(20));
    NcclConfig config;
    EXPECT_EQ(api.comm_init_rank_config(&comms[rank], 2, id, rank, &config),
              NcclResult::kInProgress);
    return BorrowNcclEngine(EmulatedOptions({}), comms[rank], /*side=*/nullptr, context);
  };
  OnRanks({.size = 2}, create, [](Rank& self) {
    std::vector<float> array(64, 1.0f);
    ASSERT_OK(self.communicator->AllReduce(array, absl::MakeSpan(array), {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(array.back(), 2.0f);
  });
  for (const NcclComm comm : comms) api.comm_destroy(comm);
}

TEST_F(NcclTest, ABorrowedCommunicatorThatDoesNotComeIsNamed) {
  const NcclApi api = EmulatedNccl::Api();
  NcclUniqueId id = {};
  ASSERT_EQ(api.get_unique_id(&id), NcclResult::kSuccess);
  NcclComm comm = nullptr;
  NcclConfig config;
  api.comm_init_rank_config(&comm, /*ranks=*/2, id, /*rank=*/0, &config);
  NcclOptions options = EmulatedOptions({});
  options.timeout = absl::Milliseconds(50);
  auto context = CreateRankContext(0, {});
  EXPECT_THAT(BorrowNcclEngine(options, comm, /*side=*/nullptr, *context),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("the borrowed communicator is still being made after 50ms")));
  api.comm_abort(comm);
}

TEST_F(NcclTest, BadArgumentsAreNamed) {
  auto group = ThreadGroup::Create({2}).value();
  auto context = CreateRankContext(0, {});
  NcclOptions options = EmulatedOptions({});
  options.api.supports = [](device::DeviceKind kind) { return kind == device::DeviceKind::kCuda; };
  EXPECT_THAT(CreateNcclEngine(options, group->Join(0, *context).value(), *context),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("NCCL needs a CUDA context, not cpu")));
}

}  // namespace
}  // namespace brigade::collectives
