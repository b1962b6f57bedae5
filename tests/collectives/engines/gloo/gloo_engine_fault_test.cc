// Faults between processes: each is an error that names the culprit, on every rank, in bounded
// time.

#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kCount = 300'000;  // floats: some milliseconds, several chunks

const char* const kAllReduce64 = "all_reduce(sum of 64 fp32, direct)";

absl::Status EnqueueAllReduce(Rank& self, Arrays& arrays) {
  return self.communicator->AllReduce(arrays.input.data(), arrays.output.data(),
                                      static_cast<int64_t>(arrays.input.size()), kFloat32, {},
                                      *self.stream);
}

// Sends `signal` to this process while it is, most likely, in the middle of something.
void SignalSoon(Fault& fault, int signal) {
  std::thread([&fault, signal] {
    absl::SleepFor(absl::Milliseconds(50));
    fault.Begin();
    kill(getpid(), signal);
  }).detach();
}

struct Victim {
  int rank;
  Algorithm algorithm;
};
class AVictim : public ::testing::TestWithParam<Victim> {};

TEST_P(AVictim, KilledInAnAllReduceIsNamedByTheSurvivors) {
  const auto [victim, algorithm] = GetParam();
  const auto reports = OnProcesses(4, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    if (self.rank == victim) SignalSoon(fault, SIGKILL);
    return AddOnesUntilItEnds(self, arrays, kCount, algorithm);
  });
  ExpectReports(reports, victim,
                StatusIs(absl::StatusCode::kUnavailable,
                         HasSubstr(absl::StrCat("rank ", victim, " is gone"))));
}

TEST_P(AVictim, StoppedInAnAllReduceIsNamedAtTheDeadline) {
  const auto [victim, algorithm] = GetParam();
  const auto reports = OnProcesses(4, kDeadline, [&](Rank& self, Arrays& arrays, Fault& fault) {
    if (self.rank == victim) SignalSoon(fault, SIGSTOP);
    return AddOnesUntilItEnds(self, arrays, kCount, algorithm);
  });
  ExpectReports(reports, victim,
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(StartsWith(absl::StrCat("rank ", victim, " ")),
                               HasSubstr("does not answer"))));
}

TEST_P(AVictim, KilledIsLeftBehindByShrink) {
  const auto [victim, algorithm] = GetParam();
  const auto reports = OnProcesses(4, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    if (self.rank == victim) SignalSoon(fault, SIGKILL);
    const absl::Status failed = AddOnesUntilItEnds(self, arrays, kCount, algorithm);
    BRIGADE_RETURN_IF_ERROR(self.stream->Reset());
    auto shrunk = self.communicator->Shrink({victim});
    if (!shrunk.ok()) return shrunk.status();
    if ((*shrunk)->size() != 3) return Wrong(absl::StrCat("size ", (*shrunk)->size()));
    if ((*shrunk)->rank() != self.rank - (self.rank > victim)) return Wrong("ranks out of order");
    for (int i = 0; i < 3; ++i) {
      BRIGADE_RETURN_IF_ERROR(AddOnes(**shrunk, self, arrays, kCount, algorithm));
    }
    if (self.communicator->status() != failed) return Wrong("the first error has not stayed");
    // Nobody leaves before all have their sums.
    BRIGADE_RETURN_IF_ERROR((*shrunk)->Barrier(*self.stream));
    return self.stream->Synchronize();
  });
  ExpectAllOk(reports, victim);
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, AVictim,
    ::testing::Values(Victim{3, Algorithm::kDirect}, Victim{0, Algorithm::kDirect},
                      Victim{2, Algorithm::kRing}, Victim{0, Algorithm::kRing}),
    [](const auto& info) {
      return absl::StrCat("Rank", info.param.rank, "In_", Name(info.param.algorithm));
    });

TEST(GlooEngineFaultTest, ARankThatNeverMakesTheCallIsNamedAtTheDeadline) {
  const auto reports = OnProcesses(4, kDeadline, [&](Rank& self, Arrays& arrays, Fault& fault) {
    BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
    if (self.rank != 2) {
      fault.Begin();
      BRIGADE_RETURN_IF_ERROR(EnqueueAllReduce(self, arrays));
      self.communicator->sent_bytes(2);
      if (!self.communicator->status().ok()) return Wrong("sent_bytes waits for the call");
      return Ended(self, self.stream->Synchronize());
    }
    while (self.communicator->status().ok()) absl::SleepFor(absl::Milliseconds(1));
    return AddOnesUntilItEnds(self, arrays, 64);  // too late, but it learns why
  });
  ExpectReports(
      reports, -1,
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(StartsWith("rank 2 "), HasSubstr("is alive, but waits for nobody"))));
}

// Which numbers them from 0: the world's ranks 0 and 1 have nothing to do with it.
TEST(GlooEngineFaultTest, CallsThatDifferInAPartNameTheWorldsRanks) {
  const auto reports = OnProcesses(4, kNever, [&](Rank& self, Arrays& arrays, Fault&) {
    auto part = self.communicator->Split(self.rank / 2, self.rank);
    if (!part.ok()) return part.status();
    AddOnes(**part, self, arrays, self.rank == 3 ? 65 : 64).IgnoreError();
    return (*part)->status();
  });
  for (const int rank : {0, 1}) EXPECT_OK(reports[static_cast<size_t>(rank)].status);
  for (const int rank : {2, 3}) {
    EXPECT_THAT(reports[static_cast<size_t>(rank)].status,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("in the group of ranks 2 and 3: rank 0 calls all_reduce"),
                               HasSubstr("but rank 1 calls all_reduce"))));
  }
}

// Rank 0 waits for rank 1, which waits for rank 2 in another group, from later on.
TEST(GlooEngineFaultTest, ARankThatWaitsInAnotherGroupIsNotNamed) {
  const auto reports = OnProcesses(3, kDeadline, [&](Rank& self, Arrays& arrays, Fault& fault) {
    // Of ranks 0 and 1, and of ranks 1 and 2.
    auto first = self.communicator->Split(self.rank < 2 ? 0 : -1, 0);
    if (!first.ok()) return first.status();
    auto second = self.communicator->Split(self.rank > 0 ? 0 : -1, 0);
    if (!second.ok()) return second.status();
    fault.AwaitAll();
    if (self.rank == 2) {
      absl::SleepFor(6 * kDeadline);
      return (*second)->status();
    }
    if (self.rank == 0) {
      fault.Begin();
      return AddOnes(**first, self, arrays, 64);
    }
    absl::SleepFor(kDeadline / 2);
    const absl::Status failed = AddOnes(**second, self, arrays, 64);
    (*first)->Abort(failed);
    return failed;
  });
  for (const Report& report : reports) {
    EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                        AllOf(HasSubstr("rank 1 sent nothing"),
                                              HasSubstr("is alive, but waits for nobody"))));
  }
}

TEST(GlooEngineFaultTest, AbortEndsABlockedSynchronizeAtOnceAndTwiceIsSafe) {
  const absl::Status reason = absl::CancelledError("rank 0 ran out of data");
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
    if (self.rank == 1) {  // lets the others wait
      while (self.communicator->status().ok()) absl::SleepFor(absl::Milliseconds(1));
      return self.communicator->status();
    }
    std::thread aborter;
    if (self.rank == 0) {
      aborter = std::thread([&] {
        absl::SleepFor(absl::Milliseconds(50));  // meanwhile it waits, most likely
        fault.Begin();
        self.communicator->Abort(reason);
        self.communicator->Abort(absl::InternalError("too late"));
      });
    }
    const absl::Status status = AddOnesUntilItEnds(self, arrays, 64);
    if (aborter.joinable()) aborter.join();
    if (self.rank == 0 && status != reason) return Wrong(status.ToString());
    return status;
  });
  ExpectReports(reports, -1,
                StatusIs(absl::StatusCode::kCancelled, StartsWith("rank 0 ran out of data")));
}

TEST(GlooEngineFaultTest, ARankThatLeavesEarlyIsNamed) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
    if (self.rank == 1) return absl::OkStatus();
    fault.Begin();
    return AddOnesUntilItEnds(self, arrays, 64);
  });
  EXPECT_OK(reports[1].status);
  ExpectReports(reports, 1, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 has left")));
}

TEST(GlooEngineFaultTest, WorkOutstandingAtTheEndIsCarriedOut) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault&) {
    arrays.input.assign(kCount, 1.0f);
    arrays.output.assign(kCount, 0.0f);
    for (int i = 0; i < 10; ++i) BRIGADE_RETURN_IF_ERROR(EnqueueAllReduce(self, arrays));
    self.communicator.reset();
    BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
    return arrays.output == std::vector<float>(kCount, 3.0f) ? absl::OkStatus() : Wrong("sum");
  });
  ExpectAllOk(reports);
}

TEST(GlooEngineFaultTest, WorkOutstandingAtTheEndDoesNotHangWithoutTheOthers) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, kCount));
    if (self.rank != 1) return absl::OkStatus();  // the others leave
    fault.Begin();
    for (int i = 0; i < 10; ++i) {
      if (!EnqueueAllReduce(self, arrays).ok()) break;
    }
    self.communicator.reset();
    return self.stream->Synchronize();
  });
  EXPECT_OK(reports[0].status);
  EXPECT_OK(reports[2].status);
  EXPECT_THAT(reports[1].status,
              StatusIs(absl::StatusCode::kUnavailable,
                       AnyOf(HasSubstr("rank 0 has left"), HasSubstr("rank 2 has left"))));
}

// The stream fails before the call is made, or while the call is in its queue.
TEST(GlooEngineFaultTest, AStreamThatHasFailedIsNamedByAllAtOnce) {
  for (const bool queued : {false, true}) {
    for (const bool other_stream : {false, true}) {
      const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
        BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
        std::unique_ptr<device::Stream> second;
        if (other_stream) {
          second = self.context->CreateStream("second").value();
          std::swap(self.stream, second);
        }
        if (self.rank == 1) {
          BRIGADE_RETURN_IF_ERROR(self.stream->Enqueue({"loader"}, [&](device::ThreadPool&) {
            if (queued) absl::SleepFor(absl::Milliseconds(200));
            fault.Begin();
            return absl::DataLossError("bad record");
          }));
          if (!queued) self.stream->Synchronize().IgnoreError();
        }
        if (self.rank != 1) return AddOnesUntilItEnds(self, arrays, 64);
        const absl::Status status = AddOnes(*self.communicator, self, arrays, 64);
        if (!absl::IsDataLoss(status)) return Wrong(status.ToString());
        return self.communicator->status();
      });
      ExpectReports(reports, -1,
                    StatusIs(absl::StatusCode::kDataLoss,
                             AllOf(HasSubstr(absl::StrCat("rank 1 cannot join ", kAllReduce64)),
                                   HasSubstr("\"loader\" on stream"), HasSubstr("bad record"))));
    }
  }
}

}  // namespace
}  // namespace brigade::collectives::testing
