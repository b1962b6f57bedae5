// Faults between processes: each is an error that names the culprit, on every rank, in bounded time.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/gloo/gloo_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::StartsWith;

constexpr absl::Duration kNever = absl::Seconds(40);  // a timeout that no test waits for
constexpr double kAtOnce = 2.0 * kSlowness;
constexpr double kBusy = 0.2 * kSlowness;  // what a busy machine may add to a deadline
constexpr int64_t kCount = 300'000;        // floats: some milliseconds, several chunks

const char* const kAllReduce64 = "all_reduce(sum of 64 float32, direct)";

absl::Status Wrong(const std::string& what) { return absl::InternalError(what); }

// Sends `signal` to this process while it is in the middle of something.
void SignalSoon(Fault& fault, int signal) {
  std::thread([&fault, signal] {
    absl::SleepFor(absl::Milliseconds(150));
    fault.Begin();
    kill(getpid(), signal);
  }).detach();
}

// The error that ended the communicator, which is what the call or the stream said.
absl::Status Ended(Rank& self, const absl::Status& said) {
  const absl::Status status = self.communicator->status();
  if (!status.ok() && said.code() == status.code() &&
      absl::EndsWith(said.message(), status.message())) {
    return status;
  }
  return Wrong(absl::StrCat("said ", said.ToString(), ", but ended by ", status.ToString()));
}

absl::Status AddOnesUntilItEnds(Rank& self, Arrays& arrays, int64_t count,
                                Algorithm algorithm = Algorithm::kDirect) {
  while (true) {
    const absl::Status status = AddOnes(*self.communicator, self, arrays, count, algorithm);
    if (!status.ok()) return Ended(self, status);
  }
}

// All ranks but `except` report that, at most `seconds` after the fault. -1: nobody is excepted.
void ExpectReports(const std::vector<Report>& reports, int except,
                   const Matcher<const absl::Status&>& status, double seconds) {
  double last = 0;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (static_cast<int>(rank) == except) continue;
    EXPECT_THAT(reports[rank].status, status) << "rank " << rank;
    EXPECT_LT(reports[rank].seconds, seconds) << "rank " << rank;
    last = std::max(last, reports[rank].seconds);
  }
  std::printf("last report %.3f s after the fault: %s\n", last,
              reports[except == 0 ? 1 : 0].status.ToString().c_str());
}

void ExpectAllOk(const std::vector<Report>& reports, int except = -1) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (static_cast<int>(rank) == except) continue;
    EXPECT_OK(reports[rank].status) << "rank " << rank;
  }
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
  ExpectReports(
      reports, victim,
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr(absl::StrCat("rank ", victim, " is gone"))),
      kAtOnce);
}

TEST_P(AVictim, StoppedInAnAllReduceIsNamedAtTheDeadline) {
  const auto [victim, algorithm] = GetParam();
  const double timeout = 1.0 * kSlowness;
  const auto reports =
      OnProcesses(4, absl::Seconds(timeout), [&](Rank& self, Arrays& arrays, Fault& fault) {
        if (self.rank == victim) SignalSoon(fault, SIGSTOP);
        return AddOnesUntilItEnds(self, arrays, kCount, algorithm);
      });
  ExpectReports(reports, victim,
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(StartsWith(absl::StrCat("rank ", victim, " ")),
                               HasSubstr("does not answer"))),
                1.2 * timeout + kBusy);
}

TEST_P(AVictim, KilledIsLeftBehindByShrink) {
  const auto [victim, algorithm] = GetParam();
  const auto reports = OnProcesses(4, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    if (self.rank == victim) SignalSoon(fault, SIGKILL);
    const absl::Status failed = AddOnesUntilItEnds(self, arrays, kCount, algorithm);
    RETURN_IF_ERROR(self.stream->Reset());
    auto shrunk = self.communicator->Shrink({victim});
    if (!shrunk.ok()) return shrunk.status();
    if ((*shrunk)->size() != 3) return Wrong(absl::StrCat("size ", (*shrunk)->size()));
    if ((*shrunk)->rank() != self.rank - (self.rank > victim)) return Wrong("ranks out of order");
    for (int i = 0; i < 3; ++i) {
      RETURN_IF_ERROR(AddOnes(**shrunk, self, arrays, kCount, algorithm));
    }
    if (self.communicator->status() != failed) return Wrong("the first error has not stayed");
    // Nobody leaves before all have their sums.
    RETURN_IF_ERROR((*shrunk)->Barrier(*self.stream));
    return self.stream->Synchronize();
  });
  ExpectAllOk(reports, victim);
}

INSTANTIATE_TEST_SUITE_P(Ranks, AVictim,
                         ::testing::Values(Victim{3, Algorithm::kDirect},
                                           Victim{0, Algorithm::kDirect},
                                           Victim{2, Algorithm::kRing}, Victim{0, Algorithm::kRing}),
                         [](const auto& info) {
                           return absl::StrCat("Rank", info.param.rank, "In_",
                                               Name(info.param.algorithm));
                         });

TEST(GlooEngineFaultTest, ARankThatNeverMakesTheCallIsNamedAtTheDeadline) {
  const double timeout = 1.0 * kSlowness;
  const auto reports =
      OnProcesses(4, absl::Seconds(timeout), [&](Rank& self, Arrays& arrays, Fault& fault) {
        RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
        if (self.rank != 2) {
          fault.Begin();
          return AddOnesUntilItEnds(self, arrays, 64);
        }
        while (self.communicator->status().ok()) absl::SleepFor(absl::Milliseconds(1));
        return AddOnesUntilItEnds(self, arrays, 64);  // too late, but it learns why
      });
  ExpectReports(reports, -1,
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(StartsWith("rank 2 "), HasSubstr("is alive, but waits for nobody"))),
                1.2 * timeout + kBusy);
}

// Calls that differ: all ranks name both, no process dies, and the communicator has ended.
using OddCall = std::function<absl::Status(Rank& self, Arrays& arrays, bool odd)>;
void ExpectMismatch(const OddCall& call, const std::string& usual, const std::string& different) {
  for (const int odd : {1, 0}) {
    const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
      RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 128));
      fault.Begin();
      absl::Status status = call(self, arrays, self.rank == odd);
      if (status.ok()) status = self.stream->Synchronize();
      if (arrays.output != std::vector<float>(128, 3.0f)) return Wrong("an array was touched");
      status = Ended(self, status);
      RETURN_IF_ERROR(self.stream->Reset());
      if (self.communicator->Barrier(*self.stream) != status) return Wrong("another error");
      // They agree who is there, so they can go on.
      auto again = self.communicator->Shrink({});
      if (!again.ok()) return again.status();
      RETURN_IF_ERROR(AddOnes(**again, self, arrays, 64));
      RETURN_IF_ERROR((*again)->Barrier(*self.stream));
      RETURN_IF_ERROR(self.stream->Synchronize());
      return status;
    });
    ExpectReports(
        reports, -1,
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(absl::StrCat("rank ", 1 - odd, " calls ", usual)),
                       HasSubstr(absl::StrCat("rank ", odd, " calls ", different)),
                       HasSubstr("as its call 1"))),
        kAtOnce);
  }
}

absl::Status AllReduce(Rank& self, Arrays& arrays, int64_t count,
                       precision::DType dtype = precision::DType::kFloat32) {
  return self.communicator->AllReduce(arrays.input.data(), arrays.output.data(), count, {dtype},
                                      *self.stream);
}

TEST(GlooEngineFaultTest, CountsThatDiffer) {
  ExpectMismatch([](Rank& self, Arrays& arrays,
                    bool odd) { return AllReduce(self, arrays, odd ? 65 : 64); },
                 kAllReduce64, "all_reduce(sum of 65 float32, direct)");
}

TEST(GlooEngineFaultTest, TypesThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) {
        return AllReduce(self, arrays, 64,
                         odd ? precision::DType::kInt32 : precision::DType::kFloat32);
      },
      kAllReduce64, "all_reduce(sum of 64 int32, direct)");
}

TEST(GlooEngineFaultTest, RootsThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) {
        return self.communicator->Broadcast(arrays.input.data(), arrays.output.data(), 8,
                                            odd ? 1 : 0, {}, *self.stream);
      },
      "broadcast(8 float32, from rank 0)", "broadcast(8 float32, from rank 1)");
}

TEST(GlooEngineFaultTest, OrdersThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) {
        RETURN_IF_ERROR(odd ? self.communicator->Barrier(*self.stream)
                            : AllReduce(self, arrays, 64));
        return odd ? AllReduce(self, arrays, 64) : self.communicator->Barrier(*self.stream);
      },
      kAllReduce64, "barrier()");
}

TEST(GlooEngineFaultTest, ASendThatOthersDoNotKnowOf) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
    fault.Begin();
    if (self.rank != 1) return AddOnesUntilItEnds(self, arrays, 64);
    RETURN_IF_ERROR(self.communicator->Send(arrays.input.data(), 4, 2, {}, *self.stream));
    return self.stream->Synchronize();
  });
  ExpectReports(reports, -1,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 1 calls send(4 float32, from rank 1) as its call 0"),
                               HasSubstr(absl::StrCat("calls ", kAllReduce64, " as its call 1")))),
                kAtOnce);
}

TEST(GlooEngineFaultTest, ASplitThatOthersDoNotKnowOf) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
    fault.Begin();
    if (self.rank != 1) return AddOnesUntilItEnds(self, arrays, 64);
    return self.communicator->Split(0, 0).status();
  });
  ExpectReports(reports, -1,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 1 calls split"),
                               HasSubstr(absl::StrCat("rank 0 calls ", kAllReduce64)))),
                kAtOnce);
}

TEST(GlooEngineFaultTest, AbortEndsABlockedSynchronizeAtOnceAndTwiceIsSafe) {
  const absl::Status reason = absl::CancelledError("rank 0 ran out of data");
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
    if (self.rank == 1) {  // lets the others wait
      while (self.communicator->status().ok()) absl::SleepFor(absl::Milliseconds(1));
      return self.communicator->status();
    }
    std::thread aborter;
    if (self.rank == 0) {
      aborter = std::thread([&] {
        absl::SleepFor(absl::Milliseconds(200));
        fault.Begin();
        self.communicator->Abort(reason);
        self.communicator->Abort(absl::InternalError("too late"));
      });
    }
    const absl::Status status = AddOnesUntilItEnds(self, arrays, 64);
    const double seconds = fault.SecondsSince();
    if (aborter.joinable()) aborter.join();
    if (self.rank == 0 && status != reason) return Wrong(status.ToString());
    if (seconds > 0.1 * kSlowness) return Wrong(absl::StrCat("back after ", seconds, " s"));
    return status;
  });
  ExpectReports(
      reports, -1,
      StatusIs(absl::StatusCode::kCancelled, StartsWith("rank 0 ran out of data")),
      kAtOnce);
}

TEST(GlooEngineFaultTest, ARankThatLeavesEarlyIsNamed) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
    if (self.rank == 1) return absl::OkStatus();
    fault.Begin();
    return AddOnesUntilItEnds(self, arrays, 64);
  });
  EXPECT_OK(reports[1].status);
  ExpectReports(reports, 1,
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 has left")), kAtOnce);
}

TEST(GlooEngineFaultTest, WorkOutstandingAtTheEndIsCarriedOut) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault&) {
    arrays.input.assign(kCount, 1.0f);
    arrays.output.assign(kCount, 0.0f);
    for (int i = 0; i < 10; ++i) RETURN_IF_ERROR(AllReduce(self, arrays, kCount));
    self.communicator.reset();
    RETURN_IF_ERROR(self.stream->Synchronize());
    return arrays.output == std::vector<float>(kCount, 3.0f) ? absl::OkStatus() : Wrong("sum");
  });
  ExpectAllOk(reports);
}

TEST(GlooEngineFaultTest, WorkOutstandingAtTheEndDoesNotHangWithoutTheOthers) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, kCount));
    if (self.rank != 1) return absl::OkStatus();  // the others leave
    fault.Begin();
    for (int i = 0; i < 10; ++i) {
      if (!AllReduce(self, arrays, kCount).ok()) break;
    }
    self.communicator.reset();
    return self.stream->Synchronize();
  });
  EXPECT_OK(reports[0].status);
  EXPECT_OK(reports[2].status);
  EXPECT_THAT(reports[1].status,
              StatusIs(absl::StatusCode::kUnavailable,
                       AnyOf(HasSubstr("rank 0 has left"), HasSubstr("rank 2 has left"))));
  EXPECT_LT(reports[1].seconds, kAtOnce);
}

// The stream fails before the call is made, or while the call is in its queue.
TEST(GlooEngineFaultTest, AStreamThatHasFailedIsNamedByAllAtOnce) {
  for (const bool queued : {false, true}) {
    for (const bool other_stream : {false, true}) {
      const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
        RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
        std::unique_ptr<device::Stream> second;
        if (other_stream) {
          second = self.context->NewStream("second").value();
          std::swap(self.stream, second);
        }
        if (self.rank == 1) {
          RETURN_IF_ERROR(self.stream->Enqueue({"loader"}, [&](device::ThreadPool&) {
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
                    StatusIs(absl::StatusCode::kAborted,
                             HasSubstr(absl::StrCat("rank 1 cannot join ", kAllReduce64))),
                    kAtOnce);
    }
  }
}

TEST(GlooEngineFaultTest, SplitMakesGroupsOfTheirOwn) {
  const auto reports = OnProcesses(4, kNever, [&](Rank& self, Arrays& arrays, Fault&) {
    // 0 and 2 in the order 2, 0; 1 and 3 likewise.
    auto half = self.communicator->Split(self.rank % 2, -self.rank);
    if (!half.ok()) return half.status();
    if ((*half)->size() != 2 || (*half)->rank() != 1 - self.rank / 2) return Wrong("half");
    float mine = static_cast<float>(self.rank), all[2] = {-1, -1};
    RETURN_IF_ERROR((*half)->AllGather(&mine, all, 1, {}, *self.stream));
    RETURN_IF_ERROR(self.stream->Synchronize());
    if (all[0] != 2 + self.rank % 2 || all[1] != self.rank % 2) return Wrong("all_gather");
    RETURN_IF_ERROR(AddOnes(**half, self, arrays, kCount));
    RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 1001));
    auto alone = (*half)->Split((*half)->rank() == 0 ? 5 : -1, 0);
    if (!alone.ok()) return alone.status();
    if ((*alone == nullptr) != ((*half)->rank() != 0)) return Wrong("a color of its own");
    if (*alone != nullptr) RETURN_IF_ERROR(AddOnes(**alone, self, arrays, 100));
    auto again = self.communicator->Split(0, self.rank);
    if (!again.ok()) return again.status();
    RETURN_IF_ERROR(AddOnes(**again, self, arrays, 100));
    // The end of a part is not the end of the whole.
    if (self.rank == 1) (*half)->Abort(absl::CancelledError("enough of halves"));
    if (self.rank == 3) {
      while ((*half)->status().ok()) absl::SleepFor(absl::Milliseconds(1));
    }
    RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 100));
    RETURN_IF_ERROR(self.communicator->Barrier(*self.stream));
    return self.stream->Synchronize();
  });
  ExpectAllOk(reports);
}

TEST(GlooEngineFaultTest, SentBytesEqualTheFormula) {
  for (const int size : {2, 3, 4}) {
    const auto reports = OnProcesses(size, kNever, [&](Rank& self, Arrays& arrays, Fault&) {
      const int64_t count = 64 * size * 1000;
      int64_t before = 0;
      for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
        RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, count, algorithm));
        int64_t sent = -before;
        for (int to = 0; to < size; ++to) sent += self.communicator->sent_bytes(to);
        before += sent;
        const int64_t formula = 2 * (size - 1) * count / size * int64_t{sizeof(float)};
        if (sent != formula) return Wrong(absl::StrCat(sent, " bytes, not ", formula));
      }
      RETURN_IF_ERROR(self.communicator->Barrier(*self.stream));
      return self.stream->Synchronize();
    });
    ExpectAllOk(reports);
  }
}

}  // namespace
}  // namespace brigade::collectives::testing
