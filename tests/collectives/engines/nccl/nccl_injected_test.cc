// Errors of NCCL's functions, each injected: the call ends with an error that names it, on every
// rank, without a hang or a leak.

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "brigade/tests/collectives/engines/nccl/faults.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Effect = EmulatedNccl::Effect;

// Every function that calls use, and every way in which it can fail.
struct Injected {
  const char* function;
  Effect effect;
};

class NcclInjectedTest : public NcclFaultTest, public ::testing::WithParamInterface<Injected> {};

TEST_P(NcclInjectedTest, EndsTheGroupOnAllRanksAndNamesTheFunction) {
  const Injected injected = GetParam();
  const bool hangs = injected.effect == Effect::kHangs;
  const auto body = [&](Rank& self) {
    Communicator& group = *self.communicator;
    Arrays& arrays = ArraysOf(self);
    ASSERT_OK(AllReduce(self));
    ASSERT_OK(self.stream->Synchronize());
    self.AwaitOthers();
    if (self.rank == 1) EmulatedNccl::Inject({injected.function, 1, injected.effect});
    self.AwaitOthers();
    absl::Status status;
    const auto call = [&](const std::function<absl::Status()>& make) {
      if (status.ok()) status = make();
    };
    float* const in = arrays.input.data();
    float* const out = arrays.output.data();
    call([&] { return AllReduce(self); });
    call([&] {
      return group.ReduceScatter(in, out, 8, kFloat32, By(Algorithm::kNative), *self.stream);
    });
    call([&] { return group.AllGather(in, out, 8, kFloat32, {}, *self.stream); });
    call([&] { return group.Broadcast(in, out, 8, kFloat32, 0, *self.stream); });
    call([&] { return AllReduce(self, 64, Algorithm::kDirect); });
    if (self.rank < 2) {
      call([&] {
        return self.rank == 0 ? group.Send(in, 8, kFloat32, 1, *self.stream)
                              : group.Receive(out, 8, kFloat32, 0, *self.stream);
      });
    }
    status = AwaitEnd(self);
    // Grouping is of no rank, and what comes later has no function.
    const std::string culprit =
        injected.function == std::string("ncclGroupStart") ? "" : "rank 1: ";
    const std::string function = injected.effect == Effect::kLater ? "" : injected.function;
    EXPECT_THAT(std::string(status.message()), HasSubstr(culprit + function));
    if (hangs) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                   HasSubstr("is still in progress after 1s")));
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                   HasSubstr("ncclSystemError (a fault of the test): said last")));
    }
    EXPECT_EQ(AllReduce(self), status) << "the first error stays";
    ExpectRebuilt(self, {});
  };
  On({.size = 3}, body, hangs ? LetRank1ExpireFirst : AdaptFn());
}

std::string NameOf(const ::testing::TestParamInfo<Injected>& info) {
  const char* const effects[] = {"Returns", "Hangs", "Later"};
  return std::string(info.param.function) + effects[static_cast<int>(info.param.effect)];
}

INSTANTIATE_TEST_SUITE_P(
    Functions, NcclInjectedTest,
    ::testing::Values(
        Injected{"ncclAllReduce", Effect::kReturns}, Injected{"ncclAllReduce", Effect::kHangs},
        Injected{"ncclAllReduce", Effect::kLater}, Injected{"ncclReduceScatter", Effect::kReturns},
        Injected{"ncclReduceScatter", Effect::kHangs}, Injected{"ncclAllGather", Effect::kReturns},
        Injected{"ncclAllGather", Effect::kHangs}, Injected{"ncclBroadcast", Effect::kReturns},
        Injected{"ncclBroadcast", Effect::kHangs}, Injected{"ncclSend", Effect::kReturns},
        Injected{"ncclRecv", Effect::kReturns}, Injected{"ncclGroupStart", Effect::kReturns},
        Injected{"ncclGroupEnd", Effect::kReturns}, Injected{"ncclGroupEnd", Effect::kHangs},
        Injected{"ncclCommGetAsyncError", Effect::kReturns}),
    NameOf);

// While a group is made.
TEST_F(NcclFaultTest, CreationThatFailsIsNamedOnAllRanks) {
  for (const Injected& injected : {Injected{"ncclGetUniqueId", Effect::kReturns},
                                   Injected{"ncclCommInitRankConfig", Effect::kReturns},
                                   Injected{"ncclCommInitRankConfig", Effect::kHangs}}) {
    const int culprit = injected.function == std::string("ncclGetUniqueId") ? 0 : 1;
    EmulatedNccl::Inject({injected.function, culprit, injected.effect});
    const RanksOptions options = {.size = 3};
    const CreateEngineFn create_engine =
        NcclEngines(options, injected.effect == Effect::kHangs ? LetRank1ExpireFirst : AdaptFn());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        auto context = CreateRankContext(rank, options);
        const auto made = create_engine(rank, *context);
        // What hangs on one rank may have succeeded on another.
        while (made.ok() && (*made)->status().ok()) std::this_thread::yield();
        const absl::Status status = made.ok() ? (*made)->status() : made.status();
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr("rank " + std::to_string(culprit) + ": " + injected.function))
            << rank;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(NcclFaultTest, ASplitThatFailsIsNamedOnAllRanksAndTheChildIsNotLost) {
  for (const Effect effect : {Effect::kReturns, Effect::kHangs}) {
    const auto body = [&](Rank& self) {
      if (self.rank == 1) EmulatedNccl::Inject({"ncclCommSplit", 1, effect});
      const auto split = self.communicator->Split(self.rank == 2 ? -1 : 0, 0);
      // What hangs on one rank may have succeeded on another.
      const absl::Status status = split.ok() ? AwaitEnd(self) : split.status();
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("rank 1: "), HasSubstr("ncclCommSplit")));
    };
    On({.size = 3}, body, effect == Effect::kHangs ? LetRank1ExpireFirst : AdaptFn());
  }
}

TEST_F(NcclFaultTest, RegistrationThatFailsIsNamed) {
  EmulatedNccl::Inject({"ncclCommRegister", -1, Effect::kReturns, NcclResult::kInvalidUsage});
  auto group = ThreadGroup::Create({1}).value();
  auto context = CreateRankContext(0, {});
  auto engine =
      CreateNcclEngine(EmulatedOptions({}), group->Join(0, *context).value(), *context).value();
  std::vector<float> array(64);
  EXPECT_THAT(engine->Register(array.data(), 256),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("rank 0: ncclCommRegister: ncclInvalidUsage")));
}

TEST_F(NcclFaultTest, AnEndThatFailsOrHangsLeavesNothing) {
  for (const char* const function : {"ncclCommFinalize", "ncclCommDestroy"}) {
    On({.size = 2}, [&](Rank& self) {
      if (self.rank == 1) EmulatedNccl::Inject({function, 1, Effect::kReturns});
      ASSERT_OK(AllReduce(self));
      ASSERT_OK(self.stream->Synchronize());
    });
  }
  EmulatedNccl::Inject({"ncclCommFinalize", 0, Effect::kHangs});
  On({.size = 2}, [&](Rank& self) { ASSERT_OK(AllReduce(self)); });
  EmulatedNccl::Inject({"ncclCommAbort", 0, Effect::kReturns});
  On({.size = 2}, [&](Rank& self) { self.communicator->Abort(absl::CancelledError("enough")); });
}

}  // namespace
}  // namespace brigade::collectives
