// Who is not a rank gets in nowhere and holds up nobody: attackers with sockets of their own, in
// processes of their own, against a store that forms, and against the standby of one that has.

#include <sys/resource.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/bootstrap/tcp_store.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/bootstrap/attackers.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::collectives::internal::Socket;
using ::brigade::device::SteadyTime;
using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<Socket> ConnectTo(int port) {
  const SteadyTime deadline = SteadyTime::Now() + kNever;
  auto client = Socket::Connect("127.0.0.1", port, deadline);
  while (absl::IsUnavailable(client.status())) {
    absl::SleepFor(absl::Milliseconds(5));
    client = Socket::Connect("127.0.0.1", port, deadline);
  }
  return client;
}

void Send(const Socket& socket, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t some = send(socket.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (some > 0) {
      sent += static_cast<size_t>(some);
    } else if (errno == EAGAIN) {
      absl::SleepFor(absl::Milliseconds(1));
    } else {
      return;  // it has hung up
    }
  }
}

// An error unless the other end closes the connection without having said anything: at once, or
// when the stranger's time is over.
absl::Status ExpectSilence(Socket& socket, bool at_once = true) {
  const absl::StatusOr<std::string> frame =
      socket.ReceiveFrame(SteadyTime::Now() + (at_once ? 0.8 : 4.0) * internal::kHandshakeTimeout);
  if (frame.ok()) return absl::InternalError("a stranger was answered");
  if (absl::IsDeadlineExceeded(frame.status())) {
    return absl::InternalError("a stranger was not closed");
  }
  return absl::OkStatus();
}

// One who has listened to the first frames of a rank repeats them. The server says its nonce, and
// hears the proof for another one.
absl::Status Replay(int port, int rank_of_server) {
  const JobSecret& secret = *StoreOptions(1, 2, port).job.secret;
  const std::string nonce = Nonce();
  const std::string knock =
      PackFields({std::string(internal::kProtocol), nonce,
                  secret.Sign({"knock", absl::StrCat(rank_of_server), nonce})});
  std::string proof;
  for (int round = 0; round < 2; ++round) {
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, ConnectTo(port));
    const SteadyTime deadline = SteadyTime::Now() + kNever;
    BRIGADE_RETURN_IF_ERROR(socket.SendFrame(knock, deadline));
    BRIGADE_ASSIGN_OR_RETURN(const std::string challenge, socket.ReceiveFrame(deadline));
    BRIGADE_ASSIGN_OR_RETURN(const auto fields, UnpackFields(challenge));
    if (round == 0) {
      proof = PackFields({secret.Sign(
          {"client", absl::StrCat(rank_of_server), nonce, fields[0]})});  // what a rank would send
      continue;
    }
    BRIGADE_RETURN_IF_ERROR(socket.SendFrame(proof, deadline));
    BRIGADE_RETURN_IF_ERROR(ExpectSilence(socket));
  }
  return absl::OkStatus();
}

// So many connections that each hold a part of a message.
absl::Status HoldHalfMessages(int port, int count, std::vector<Socket>& held) {
  for (int i = 0; i < count; ++i) {
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, ConnectTo(port));
    Send(socket, Frame("half", 200));
    held.push_back(std::move(socket));
  }
  return absl::OkStatus();
}

absl::Status Run(const Attack& attack, int port, int rank_of_server) {
  std::vector<Socket> sockets;
  for (const std::string& bytes : attack.connections({port, rank_of_server})) {
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, ConnectTo(port));
    Send(socket, bytes);
    sockets.push_back(std::move(socket));
  }
  for (Socket& socket : sockets) {
    BRIGADE_RETURN_IF_ERROR(ExpectSilence(socket, !attack.holds_on));
  }
  return absl::OkStatus();
}

struct NamedAttack {
  const char* name;
  std::function<absl::Status(int port, int rank_of_server)> run;
};

std::vector<NamedAttack> NamedAttacks() {
  std::vector<NamedAttack> named = {{"AReplay", Replay}};
  for (const Attack& attack : Attacks()) {
    named.push_back({attack.name, [&attack](int port, int rank_of_server) {
                       return Run(attack, port, rank_of_server);
                     }});
  }
  return named;
}

class StrangersTest : public ::testing::TestWithParam<NamedAttack> {};

TEST_P(StrangersTest, DoNotDisturbAStoreThatForms) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault&) -> absl::Status {
    if (rank == 1) BRIGADE_RETURN_IF_ERROR(GetParam().run(port, 0));
    BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(rank, 2, port)));
    BRIGADE_RETURN_IF_ERROR(store->Set(absl::StrCat("key", rank), "value", kNever));
    return GetOfAllRanks(*store, "key", 2, kNever, "the end").status();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

TEST_P(StrangersTest, DoNotDisturbAStandby) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault& fault) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(rank, 3, port)));
    if (rank == 2) {
      BRIGADE_ASSIGN_OR_RETURN(const std::string standby, store->Get("standby/1", kNever));
      BRIGADE_ASSIGN_OR_RETURN(const auto address, UnpackFields(standby));
      int standby_port = 0;
      if (address.size() != 2 || !absl::SimpleAtoi(address[1], &standby_port)) {
        return absl::InternalError("no standby");
      }
      if (address[0] != "127.0.0.1") return absl::InternalError("it listens elsewhere too");
      BRIGADE_RETURN_IF_ERROR(GetParam().run(standby_port, 1));
    }
    fault.AwaitAll();
    if (rank == 0) return absl::OkStatus();
    BRIGADE_RETURN_IF_ERROR(store->KeepSurvivors({1, 2}, kNever));
    BRIGADE_RETURN_IF_ERROR(store->Set(absl::StrCat("after/", rank - 1), "value", kNever));
    return GetOfAllRanks(*store, "after/", 2, kNever, "the end").status();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

// Who knows the secret is a rank, and may say anything: what no rank says ends his connection; what
// a rank that was started wrongly says is an error on all ranks, by its name.
TEST(InsiderTest, WhatOneSaysWhoKnowsTheSecretIsRefusedOrNamed) {
  const auto hello = [](const char* rank, const char* size, const std::string& values = "") {
    return Frame(
        PackFields({"hello", rank, size, "", "", values.empty() ? PackValues({}) : values}));
  };
  std::string answers;
  for (int code = -1; code < 20; ++code) answers += Frame(PackFields({absl::StrCat(code), "why"}));
  const struct {
    const char* name;
    std::string bytes;
    // Of the error on all ranks; empty: there is none.
    const char* error;
  } cases[] = {
      {"random bytes", RandomBytes(100000), ""},
      {"a giant length", Frame("hello", (4 << 20) + 1), ""},
      {"no list", Frame("hello"), ""},
      {"a server's answers", answers, ""},
      {"a request before a hello", Frame(PackFields({"set", "key", "value"})), ""},
      {"no values", hello("1", "2", "values"), ""},
      {"no number", hello("one", "2"), ""},
      {"a number too large", hello("4294967297", "2"), ""},
      {"no such rank", hello("2", "2"), "no rank 2 of 2"},
      {"a negative rank", hello("-1", "2"), "no rank -1 of 2"},
      {"another size", hello("1", "3"), "world sizes differ"},
      {"rank 0", hello("0", "2"), "two processes have rank 0"},
      {"values of another job", hello("1", "2", PackValues({{"seed", "2"}})), "seed"},
  };
  for (const auto& c : cases) {
    const int port = FreePort();
    const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault& fault) -> absl::Status {
      const TcpStoreOptions options = StoreOptions(rank, 2, port);
      Socket insider;
      if (rank == 1) {
        BRIGADE_ASSIGN_OR_RETURN(insider, ConnectTo(port));
        BRIGADE_RETURN_IF_ERROR(
            internal::ProveToServer(*options.job.secret, 0, insider, SteadyTime::Now() + kNever));
        Send(insider, c.bytes);
        // He hears what comes of it, or that he is closed.
        insider.ReceiveFrame(SteadyTime::Now() + kNever).IgnoreError();
      }
      const auto store = TcpStore::Create(options);
      insider.Close();
      fault.AwaitAll();
      return store.status();
    });
    for (const Report& report : reports) {
      if (*c.error == '\0') {
        EXPECT_OK(report.status) << c.name;
      } else {
        EXPECT_THAT(std::string(report.status.message()), HasSubstr(c.error)) << c.name;
      }
    }
  }
}

// The secret that rank 0 has left on this host goes with it; its standbys know it.
TEST(StandbyTest, TakesOverWhereRank0HasGoneWithTheHostsSecret) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault& fault) -> absl::Status {
    TcpStoreOptions options = StoreOptions(rank, 3, port);
    options.job.secret.reset();
    BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(options));
    if (rank == 0) return absl::OkStatus();
    fault.AwaitAll();  // until rank 0 has gone
    BRIGADE_RETURN_IF_ERROR(store->KeepSurvivors({1, 2}, 10 * kDeadline));
    BRIGADE_RETURN_IF_ERROR(store->Set(absl::StrCat("after/", rank - 1), "value", kNever));
    return GetOfAllRanks(*store, "after/", 2, 10 * kDeadline, "the end").status();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

INSTANTIATE_TEST_SUITE_P(Attacks, StrangersTest, ::testing::ValuesIn(NamedAttacks()),
                         [](const auto& info) { return std::string(info.param.name); });

// Rank 0 may have 256 descriptors; 1,000 strangers want one each, and keep them as long as they
// may.
TEST(CrowdTest, AThousandStrangersLeaveTheRanksIn) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault& fault) -> absl::Status {
    std::vector<Socket> held;
    if (rank == 0) {
      const rlimit limit = {256, 256};
      setrlimit(RLIMIT_NOFILE, &limit);
    } else {
      RaiseDescriptorLimit();
      BRIGADE_RETURN_IF_ERROR(HoldHalfMessages(port, 1000, held));
    }
    BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(rank, 2, port)));
    BRIGADE_RETURN_IF_ERROR(store->Set(absl::StrCat("key", rank), "value", kNever));
    BRIGADE_RETURN_IF_ERROR(GetOfAllRanks(*store, "key", 2, kNever, "the end").status());
    if (rank == 0 && OpenDescriptors() > internal::kMostUnproved + 60) {
      return absl::InternalError(absl::StrCat(OpenDescriptors(), " descriptors"));
    }
    fault.AwaitAll();
    return absl::OkStatus();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

// Fewer descriptors than strangers may have at once.
TEST(CrowdTest, NeitherDoesAProcessWithoutDescriptors) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault& fault) -> absl::Status {
    std::vector<Socket> held;
    if (rank == 0) {
      const rlim_t few = static_cast<rlim_t>(OpenDescriptors()) + 16;
      const rlimit limit = {few, few};
      setrlimit(RLIMIT_NOFILE, &limit);
    } else {
      BRIGADE_RETURN_IF_ERROR(HoldHalfMessages(port, 100, held));
    }
    const absl::Status status = TcpStore::Create(StoreOptions(rank, 2, port)).status();
    fault.AwaitAll();
    return status;
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

TEST(JobTest, ARankWithAnotherSecretDoesNotGetIn) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault& fault) {
    TcpStoreOptions options = StoreOptions(rank, 2, port, kDeadline);
    if (rank == 1) options.job.secret = JobSecret::Random();
    const absl::Status status = TcpStore::Create(options).status();
    fault.AwaitAll();
    return status;
  });
  EXPECT_THAT(reports[0].status,
              StatusIs(absl::StatusCode::kDeadlineExceeded, StartsWith("rank 1 did not join")));
  EXPECT_THAT(reports[1].status,
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("it does not answer one who knows this job's secret")));
}

TEST(JobTest, ValuesThatDifferAreNamedOnAllRanksOfAJob) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault& fault) {
    TcpStoreOptions options = StoreOptions(rank, 3, port);
    options.job.values = {{"seed", rank == 2 ? "8" : "7"}, {"steps", "10"}};
    const absl::Status status = TcpStore::Create(options).status();
    fault.AwaitAll();
    return status;
  });
  for (const Report& report : reports) {
    EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                        AllOf(StartsWith("rank 2 ("), HasSubstr("seed is 8, not 7"),
                                              Not(HasSubstr("steps")))));
  }
}

// Without a sign that it is of the same job it is refused alone; who misses it hears of it.
TEST(JobTest, AStrangeRankOfThisHostIsRefusedAloneAndNamed) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int process, Fault& fault) -> absl::Status {
    TcpStoreOptions options = StoreOptions(process == 0 ? 0 : 1, 2, port);
    options.job.secret.reset();
    options.job.values = {{"seed", process == 1 ? "8" : "7"}};
    if (process == 2) fault.AwaitAll();  // until process 1, which was refused, is over
    return TcpStore::Create(options).status();
  });
  EXPECT_OK(reports[0].status);
  EXPECT_THAT(reports[1].status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("seed is 8, not 7")));
  EXPECT_OK(reports[2].status);
}

TEST(JobTest, OneWhoMissesARankHearsWhoWasRefused) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault& fault) {
    TcpStoreOptions options = StoreOptions(rank, 3, port, rank == 0 ? kDeadline : kNever);
    options.job.secret.reset();
    options.job.values = {{"seed", rank == 2 ? "8" : "7"}};
    const absl::Status status = TcpStore::Create(options).status();
    fault.AwaitAll();
    return status;
  });
  for (const int rank : {0, 1}) {
    EXPECT_THAT(
        reports[static_cast<size_t>(rank)].status,
        StatusIs(absl::StatusCode::kDeadlineExceeded,
                 AllOf(HasSubstr("rank 2 did not join"), HasSubstr("one was refused: rank 2"),
                       HasSubstr("seed is 8, not 7"))));
  }
  EXPECT_THAT(reports[2].status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("seed is 8, not 7")));
}

#ifndef BRIGADE_ROUNDS
#define BRIGADE_ROUNDS 5
#endif

// One of them has the port, the other one says so; nobody meets ranks of the other.
TEST(JobTest, TwoJobsOnOnePortDoNotMix) {
  for (int round = 0; round < BRIGADE_ROUNDS; ++round) {
    const int port = FreePort();
    const std::vector<Report> reports = RunRanks(4, [&](int process, Fault& fault) -> absl::Status {
      const int rank = process % 2;
      const std::string job(1, process < 2 ? 'A' : 'B');
      TcpStoreOptions options = StoreOptions(rank, 2, port, 3 * kDeadline);
      options.job.secret.reset();
      options.job.values = {{"seed", job}};
      const auto run = [&]() -> absl::Status {
        BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(options));
        BRIGADE_RETURN_IF_ERROR(store->Set(absl::StrCat("job of ", rank), job, kNever));
        BRIGADE_ASSIGN_OR_RETURN(const auto jobs,
                                 GetOfAllRanks(*store, "job of ", 2, kNever, "the end"));
        fault.AwaitAll();
        return jobs[0] == job && jobs[1] == job ? absl::OkStatus()
                                                : absl::InternalError("it met the other job");
      };
      const absl::Status status = run();
      if (!status.ok()) fault.AwaitAll();
      return status;
    });
    const bool first = reports[0].status.ok();
    for (int process = 0; process < 4; ++process) {
      const absl::Status& status = reports[static_cast<size_t>(process)].status;
      EXPECT_EQ(status.ok(), first == (process < 2)) << "process " << process << ": " << status;
      if (status.ok()) continue;
      EXPECT_THAT(std::string(status.message()), HasSubstr("seed is "));
    }
  }
}

// Each round on the same port at once, by ranks of which one is late: those ahead find the store of
// the round before. The secret is the same in all rounds, or a new one in each.
TEST(JobTest, AGroupMadeAnewDoesNotMeetTheOneBefore) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault&) -> absl::Status {
    for (int round = 0; round < 20 * BRIGADE_ROUNDS; ++round) {
      TcpStoreOptions options = StoreOptions(rank, 3, port);
      if (round >= 10 * BRIGADE_ROUNDS) options.job.secret.reset();
      BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(options));
      BRIGADE_RETURN_IF_ERROR(
          store->Set(absl::StrCat("round of ", rank), absl::StrCat(round), kNever));
      BRIGADE_ASSIGN_OR_RETURN(const auto rounds,
                               GetOfAllRanks(*store, "round of ", 3, kNever, "the end"));
      for (const std::string& other : rounds) {
        if (other != absl::StrCat(round)) return absl::InternalError("another round");
      }
      if (rank == round % 3) absl::SleepFor(absl::Milliseconds(2));
    }
    return absl::OkStatus();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

}  // namespace
}  // namespace brigade::collectives::testing
