// Processes that are really killed and stopped. Every fault ends in bounded time in an error that
// names the culprit.

#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::device::SteadyTime;
using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::Status AwaitByte(Transport& transport, int from) {
  char byte = 0;
  BRIGADE_RETURN_IF_ERROR(transport.Expect(from, &byte, 1));
  return transport.Await(from);
}

// What ranks do meanwhile, most likely; nothing depends on it.
void LetOthersWait() { absl::SleepFor(absl::Milliseconds(50)); }

void Die(Fault& fault) {
  LetOthersWait();
  fault.Begin();
  kill(getpid(), SIGKILL);
}

void Stop(Fault& fault) {
  fault.Begin();
  kill(getpid(), SIGSTOP);
}

// Joins, exchanges something, then does `role`.
using TransportRole = std::function<absl::Status(GlooTransport& transport, Fault& fault)>;
std::vector<Report> RunGroup(int size, const std::function<absl::Duration(int rank)>& timeout_of,
                             const TransportRole& role) {
  const int port = FreePort();
  return RunRanks(size, [&](int rank, Fault& fault) -> absl::Status {
    auto transport = Join(rank, size, port, timeout_of(rank));
    if (!transport.ok()) return transport.status();
    BRIGADE_RETURN_IF_ERROR(ExchangeInRing(**transport, 1 << 20));
    fault.AwaitAll();  // no fault while others still connect, or exchange
    const absl::Status status = role(**transport, fault);
    fault.End();
    return status;
  });
}

std::vector<Report> RunGroup(int size, absl::Duration timeout, const TransportRole& role) {
  return RunGroup(
      size, [&](int) { return timeout; }, role);
}

class KilledRank : public ::testing::TestWithParam<int> {};

// Each survivor waits for another survivor, so none of them sees the death in its own wait, except
// the one that waits for the victim.
TEST_P(KilledRank, IsNamedByAllSurvivorsAtOnce) {
  const int victim = GetParam();
  const std::vector<Report> reports =
      RunGroup(4, kNever, [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        if (transport.rank() == victim) Die(fault);
        return AwaitByte(transport, (transport.rank() + 1) % 4);
      });
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kUnavailable,
                         StartsWith(absl::StrCat("rank ", victim, " is gone: "))));
    RecordProperty(absl::StrCat("rank_", rank, "_ms"),
                   static_cast<int>(reports[rank].seconds * 1e3));
  }
}

TEST_P(KilledRank, LeavesSurvivorsWhoFormAGroupAgain) {
  const int victim = GetParam();
  const std::vector<Report> reports =
      RunGroup(4, kNever, [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        if (transport.rank() == victim) Die(fault);
        BRIGADE_RETURN_IF_ERROR(absl::IsUnavailable(AwaitByte(transport, victim))
                                    ? absl::OkStatus()
                                    : absl::InternalError("the victim lives"));
        std::vector<int> survivors;
        for (int rank = 0; rank < 4; ++rank) {
          if (rank != victim) survivors.push_back(rank);
        }
        BRIGADE_RETURN_IF_ERROR(transport.store()->KeepSurvivors(survivors, kNever));
        GlooOptions options;
        options.rank = transport.rank() - (transport.rank() > victim ? 1 : 0);
        options.size = 3;
        options.store = transport.store();
        options.prefix = "survivors";
        auto again = CreateGlooTransport(options);
        if (!again.ok()) return again.status();
        return ExchangeInRing(**again, 8 << 20);
      });
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    EXPECT_OK(reports[rank].status);
  }
}

TEST_P(KilledRank, IsNamedByThoseWhoSendToIt) {
  const int victim = GetParam();
  const std::vector<char> data(8 << 20);  // each process has its own until it ends
  const std::vector<Report> reports =
      RunGroup(3, kNever, [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        if (transport.rank() == victim % 3) Die(fault);
        while (true) {
          BRIGADE_RETURN_IF_ERROR(transport.Send(victim % 3, data.data(), data.size()));
          BRIGADE_RETURN_IF_ERROR(transport.Flush());
        }
      });
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == victim % 3) continue;
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kUnavailable,
                         StartsWith(absl::StrCat("rank ", victim % 3, " is gone: "))));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRank, ::testing::Values(0, 3));

TEST(GlooFaultTest, AStoppedRankIsNamedByAllAtTheDeadline) {
  const std::vector<Report> reports =
      RunGroup(4, kDeadline, [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        if (transport.rank() == 3) Stop(fault);
        const SteadyTime began = SteadyTime::Now();
        const absl::Status status = AwaitByte(transport, (transport.rank() + 1) % 4);
        const bool heard = absl::StrContains(status.message(), "(reported by rank ");
        if (heard || SteadyTime::Now() - began >= kDeadline) return status;
        return absl::InternalError(absl::StrCat("cut short: ", status.message()));
      });
  for (int rank = 0; rank < 3; ++rank) {
    // 2 waits for 3, 1 for 2, 0 for 1: neither 1 nor 2 is to blame.
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(StartsWith("rank 3 "), HasSubstr("does not answer"))));
    RecordProperty(absl::StrCat("rank_", rank, "_ms"),
                   static_cast<int>(reports[rank].seconds * 1e3));
  }
}

// The deadline of rank 2, which waits for the culprit, is far away: the others ask it.
TEST(GlooFaultTest, TheCulpritIsFoundThroughOneWhoseDeadlineIsLater) {
  const std::vector<Report> reports = RunGroup(
      4, [](int rank) { return rank == 2 ? kNever : kDeadline; },
      [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        if (transport.rank() == 3) Stop(fault);
        return AwaitByte(transport, transport.rank() == 2 ? 3 : 2);
      });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(StartsWith("rank 3 "), HasSubstr("waits for rank 2, which waits"))));
  }
}

TEST(GlooFaultTest, AStoppedReceiverIsNamedByFlush) {
  const std::vector<char> data(8 << 20);
  const std::vector<Report> reports =
      RunGroup(2, kDeadline, [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        if (transport.rank() == 1) Stop(fault);
        BRIGADE_RETURN_IF_ERROR(transport.Send(1, data.data(), data.size()));
        return transport.Flush();
      });
  EXPECT_THAT(reports[0].status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                          HasSubstr(absl::StrCat("rank 1 took nothing for ",
                                                                 absl::FormatDuration(kDeadline),
                                                                 " and does not answer"))));
}

TEST(GlooFaultTest, ABusyRankIsNamedAsAlive) {
  const std::vector<Report> reports =
      RunGroup(2, kDeadline, [&](GlooTransport& transport, Fault&) -> absl::Status {
        if (transport.rank() == 0) return AwaitByte(transport, 1);
        while (transport.status().ok()) absl::SleepFor(absl::Milliseconds(1));
        return transport.status();
      });
  EXPECT_THAT(reports[0].status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                          AllOf(StartsWith("rank 1 sent nothing for "),
                                                HasSubstr("is alive, but waits for nobody"))));
  EXPECT_THAT(reports[1].status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                          AllOf(StartsWith("rank 1 sent nothing for "),
                                                EndsWith(" (reported by rank 0)"))));
}

TEST(GlooFaultTest, WhatRanksSayOfThemselvesIsEscapedAndCutInErrors) {
  const std::vector<Report> reports = RunGroup(
      2, [](int rank) { return rank == 0 ? kDeadline : kNever; },
      [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        transport.SetActivity([] { return std::string(1000, '\x1b'); });
        fault.AwaitAll();
        if (transport.rank() == 1) {
          fault.AwaitAll();
          return absl::OkStatus();
        }
        const absl::Status status = AwaitByte(transport, 1);
        fault.AwaitAll();
        if (status.message().size() < 1000 || status.message().size() > 2000) {
          return absl::InternalError(absl::StrCat(status.message().size(), " bytes"));
        }
        return status;
      });
  EXPECT_THAT(reports[0].status,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(StartsWith("rank 1 sent nothing"), HasSubstr("; \\x1b\\x1b"),
                             ::testing::Not(HasSubstr("\x1b")))));
}

TEST(GlooFaultTest, ASizeThatDiffersIsAnErrorAndTouchesNoMemory) {
  for (const int64_t sent : {100, 300}) {
    std::vector<char> data(300);
    const std::vector<Report> reports =
        RunGroup(2, kDeadline, [&](GlooTransport& transport, Fault&) -> absl::Status {
          data.assign(data.size(), static_cast<char>(transport.rank()));
          if (transport.rank() == 0) {
            BRIGADE_RETURN_IF_ERROR(transport.Send(1, data.data(), sent));
            return transport.Flush();
          }
          BRIGADE_RETURN_IF_ERROR(transport.Expect(0, data.data(), 200));
          const absl::Status status = transport.Await(0);
          return data == std::vector<char>(300, 1) ? status : absl::InternalError("touched");
        });
    for (const Report& report : reports) {
      EXPECT_THAT(report.status,
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           HasSubstr("the ranks disagree about the order or the size")));
    }
  }
}

TEST(GlooFaultTest, AbortEndsABlockedAwaitAtOnceOnAllRanksAndTwiceIsSafe) {
  const std::vector<Report> reports =
      RunGroup(4, kNever, [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        if (transport.rank() != 1) return AwaitByte(transport, (transport.rank() + 1) % 4);
        std::thread other([&] {
          LetOthersWait();
          fault.Begin();
          transport.Abort(absl::DataLossError("the disk of rank 1 is full"));
          transport.Abort(absl::InternalError("twice"));
        });
        const absl::Status status = AwaitByte(transport, 2);
        other.join();
        transport.Abort(absl::InternalError("three times"));
        if (transport.Flush() != status || transport.status() != status) {
          return absl::InternalError("a call forgot the error");
        }
        return status;
      });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kDataLoss,
                         absl::StrCat("the disk of rank 1 is full",
                                      rank == 1 ? "" : " (reported by rank 1)")));
    RecordProperty(absl::StrCat("rank_", rank, "_ms"),
                   static_cast<int>(reports[rank].seconds * 1e3));
  }
}

TEST(GlooFaultTest, AnAbortIsHeardAlthoughItsSenderEndsAtOnce) {
  const std::vector<Report> reports =
      RunGroup(4, kNever, [&](GlooTransport& transport, Fault&) -> absl::Status {
        if (transport.rank() == 2) {
          transport.Abort(absl::DataLossError("no more paper"));
          return absl::OkStatus();  // and the process exits
        }
        return AwaitByte(transport, 2);
      });
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kDataLoss, "no more paper (reported by rank 2)"));
  }
}

// The payload is half written, and the abort message waits behind it.
TEST(GlooFaultTest, AnAbortInTheMiddleOfASendIsHeard) {
  std::vector<char> data(128 << 20);
  const char expected = 1;
  const std::vector<Report> reports =
      RunGroup(2, kNever, [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        absl::Status status;
        if (transport.rank() == 0) {
          BRIGADE_RETURN_IF_ERROR(AwaitByte(transport, 1));
          BRIGADE_RETURN_IF_ERROR(transport.Send(1, data.data(), data.size()));
          transport.Abort(absl::CancelledError("enough"));  // no socket has taken all of it yet
          status = transport.Flush();
        } else {
          BRIGADE_RETURN_IF_ERROR(transport.Expect(0, data.data(), data.size()));
          BRIGADE_RETURN_IF_ERROR(transport.Send(0, &expected, 1));
          status = transport.Await(0);
          if (status.ok()) status = AwaitByte(transport, 0);
        }
        fault.AwaitAll();  // the connection stays open until the abort is heard
        return status;
      });
  EXPECT_THAT(reports[0].status, StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(reports[1].status,
              StatusIs(absl::StatusCode::kCancelled, "enough (reported by rank 0)"));
}

// The caller may free the memory after an error, so it must not be written later. The abort comes
// in the middle of a message.
TEST(GlooFaultTest, AfterAnErrorNothingIsWrittenToExpectedMemory) {
  std::vector<char> data(128 << 20);
  const std::vector<Report> reports =
      RunGroup(2, kNever, [&](GlooTransport& transport, Fault& fault) -> absl::Status {
        data.assign(data.size(), static_cast<char>(transport.rank()));
        if (transport.rank() == 0) {
          while (transport.Send(1, data.data(), data.size()).ok() && transport.Flush().ok()) {
          }
          fault.AwaitAll();  // Gloo goes on sending
          return absl::OkStatus();
        }
        std::thread other([&] {
          absl::SleepFor(absl::Milliseconds(2));
          transport.Abort(absl::CancelledError("enough"));
        });
        absl::Status status;
        while (status.ok()) {
          data.back() = 1;
          status = transport.Expect(0, data.data(), data.size());
          if (status.ok()) status = transport.Await(0);
        }
        const char last = data.back();
        other.join();
        absl::SleepFor(absl::Milliseconds(300));
        fault.AwaitAll();
        return data.back() == last ? status : absl::InternalError("written after the error");
      });
  EXPECT_THAT(reports[1].status, StatusIs(absl::StatusCode::kCancelled, "enough"));
}

}  // namespace
}  // namespace brigade::collectives::testing
