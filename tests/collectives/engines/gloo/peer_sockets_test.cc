// How ranks find each other among strangers, who connect to the addresses of the group before its
// ranks do and meanwhile; attackers with real sockets, in processes of their own.

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/collectives/internal/stranger_log.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/engines/gloo/hand_made_rank.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::collectives::internal::kHandshakeTimeout;
using ::brigade::collectives::internal::kMostUnproved;
using ::brigade::collectives::internal::Socket;
using ::brigade::device::SteadyTime;
using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

absl::Status ErrorUnless(bool condition, absl::string_view what) {
  return condition ? absl::OkStatus() : absl::InternalError(what);
}

// Rank 0 of 2 creates its transport, and stays until all are over. Returns what it has printed.
absl::StatusOr<std::string> CreateRank0(int port, Fault& fault, absl::Status& created) {
  BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(0, 2, port)));
  ::testing::internal::CaptureStderr();
  const auto transport = CreateGlooTransport(OptionsOf(0, 2, store));
  created = transport.status();
  std::string printed = ::testing::internal::GetCapturedStderr();
  fault.AwaitAll();
  return printed;
}

// Two processes: rank 0 is a real one, and rank 1 as the test has it.
using HandMadeRole = std::function<absl::Status(HandMadeRank& rank_1, int port_of_rank_0)>;
void RunAgainstRank0(const std::string& printed, const HandMadeRole& role) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault& fault) -> absl::Status {
    if (rank == 0) {
      absl::Status created;
      BRIGADE_ASSIGN_OR_RETURN(const std::string heard, CreateRank0(port, fault, created));
      BRIGADE_RETURN_IF_ERROR(created);
      return ErrorUnless(absl::StrContains(heard, printed),
                         absl::StrCat("standard error: ", heard));
    }
    BRIGADE_ASSIGN_OR_RETURN(HandMadeRank rank_1, HandMadeRank::Join(1, 2, port));
    BRIGADE_RETURN_IF_ERROR(rank_1.Publish(0));
    BRIGADE_ASSIGN_OR_RETURN(const int port_of_rank_0, PortOf(rank_1.store(), 0));
    BRIGADE_RETURN_IF_ERROR(role(rank_1, port_of_rank_0));
    fault.AwaitAll();
    return absl::OkStatus();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

TEST(PeerSocketsTest, StrangersTakeNobodysPlace) {
  std::mt19937 random(5);
  std::string noise(100'000, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  // Nothing; a part of a frame, and more; what Gloo takes for the begin of a message.
  for (const std::string& bytes :
       {std::string(), noise.substr(0, 31), noise, std::string(4096, '\0')}) {
    SCOPED_TRACE(bytes.size());
    const int port = FreePort();
    const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault& fault) -> absl::Status {
      BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(rank, 3, port)));
      std::vector<Socket> strangers;
      for (int other = 0; rank == 2 && other < 2; ++other) {
        BRIGADE_ASSIGN_OR_RETURN(const int port_of_other, PortOf(*store, other));
        BRIGADE_ASSIGN_OR_RETURN(Socket stranger, ConnectTo(port_of_other, bytes));
        strangers.push_back(std::move(stranger));
      }
      BRIGADE_ASSIGN_OR_RETURN(const auto transport,
                               CreateGlooTransport(OptionsOf(rank, 3, store)));
      BRIGADE_RETURN_IF_ERROR(ExchangeInRing(*transport, 1000));
      fault.AwaitAll();
      return absl::OkStatus();
    });
    for (const Report& report : reports) EXPECT_OK(report.status);
  }
}

TEST(PeerSocketsTest, TheFirstStrangerIsNamedAndAllAreCounted) {
  RunAgainstRank0(
      "refused 7 connections of strangers", [](HandMadeRank& rank_1, int port) -> absl::Status {
        for (int i = 0; i < 7; ++i) {
          BRIGADE_ASSIGN_OR_RETURN(Socket stranger, ConnectTo(port, std::string(4096, '\xff')));
          BRIGADE_RETURN_IF_ERROR(ErrorUnless(IsClosedWithin(stranger, kNever), "it was answered"));
        }
        BRIGADE_ASSIGN_OR_RETURN(Socket socket, rank_1.ProveTo(0));
        return rank_1.Stay(std::move(socket));
      });
}

// He has read all that crosses the store's connections, nonces included.
TEST(PeerSocketsTest, OneWhoKnowsTheNoncesButNotTheSecretHearsNothing) {
  RunAgainstRank0("refused 127.0.0.1:", [](HandMadeRank& rank_1, int port) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const JobSecret guess, rank_1.GroupSecret(JobSecret::Public()));
    BRIGADE_ASSIGN_OR_RETURN(Socket listener, ConnectTo(port));
    BRIGADE_RETURN_IF_ERROR(listener.SendFrame(internal::ClientHandshake(guess, 0).Knock(),
                                               SteadyTime::Now() + kNever));
    BRIGADE_RETURN_IF_ERROR(ErrorUnless(IsClosedWithin(listener, kNever), "it was answered"));
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, rank_1.ProveTo(0));
    return rank_1.Stay(std::move(socket));
  });
}

// What a rank has sent, sent again by one who has listened: the challenge is a new one.
TEST(PeerSocketsTest, OneWhoRepeatsTheProofOfARankIsRefused) {
  RunAgainstRank0("refused 127.0.0.1:", [](HandMadeRank& rank_1, int port) -> absl::Status {
    const SteadyTime never = SteadyTime::Now() + kNever;
    BRIGADE_ASSIGN_OR_RETURN(const JobSecret secret, rank_1.GroupSecret());
    const internal::ClientHandshake handshake(secret, 0);
    std::string proof;
    {
      BRIGADE_ASSIGN_OR_RETURN(Socket rank, ConnectTo(port));
      BRIGADE_RETURN_IF_ERROR(rank.SendFrame(handshake.Knock(), never));
      BRIGADE_ASSIGN_OR_RETURN(const std::string challenge, rank.ReceiveFrame(never));
      BRIGADE_ASSIGN_OR_RETURN(proof, handshake.Hear(challenge));
    }
    BRIGADE_ASSIGN_OR_RETURN(Socket listener, ConnectTo(port));
    BRIGADE_RETURN_IF_ERROR(listener.SendFrame(handshake.Knock(), never));
    BRIGADE_RETURN_IF_ERROR(listener.ReceiveFrame(never).status());
    BRIGADE_RETURN_IF_ERROR(listener.SendFrame(proof, never));
    BRIGADE_RETURN_IF_ERROR(ErrorUnless(IsClosedWithin(listener, kNever), "it was taken"));
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, rank_1.ProveTo(0));
    return rank_1.Stay(std::move(socket));
  });
}

// Several times as many strangers as there are places, before the rank connects and between two of
// its frames.
TEST(PeerSocketsTest, AFloodOfSilentConnectionsDoesNotCostASlowRankItsPlace) {
  RunAgainstRank0("too many connect at once", [](HandMadeRank& rank_1, int port) -> absl::Status {
    std::vector<Socket> strangers;
    const auto flood = [&]() -> absl::Status {
      for (int i = 0; i < 3 * kMostUnproved; ++i) {
        BRIGADE_ASSIGN_OR_RETURN(Socket stranger, ConnectTo(port));
        strangers.push_back(std::move(stranger));
      }
      return absl::OkStatus();
    };
    const SteadyTime never = SteadyTime::Now() + kNever;
    BRIGADE_ASSIGN_OR_RETURN(const JobSecret secret, rank_1.GroupSecret());
    const internal::ClientHandshake handshake(secret, 0);
    BRIGADE_RETURN_IF_ERROR(flood());
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, ConnectTo(port));
    BRIGADE_RETURN_IF_ERROR(socket.SendFrame(handshake.Knock(), never));
    BRIGADE_ASSIGN_OR_RETURN(const std::string challenge, socket.ReceiveFrame(never));
    BRIGADE_RETURN_IF_ERROR(flood());
    // The last that has connected is refused to make room for another one: all have been met.
    BRIGADE_RETURN_IF_ERROR(ErrorUnless(IsClosedWithin(strangers.at(5 * kMostUnproved - 2), kNever),
                                        "it was answered"));
    BRIGADE_ASSIGN_OR_RETURN(const std::string proof, handshake.Hear(challenge));
    BRIGADE_RETURN_IF_ERROR(socket.SendFrame(proof, never));
    return rank_1.Stay(std::move(socket));
  });
}

absl::StatusOr<Socket> AcceptOne(Socket& listener) {
  pollfd fd = {listener.fd(), POLLIN, 0};
  poll(&fd, 1, -1);
  return listener.Accept();
}

// Rank 1 is a real one, and rank 0 as the test has it.
void RunAgainstRank1(const absl::Status& expected, const GlooOptions& how,
                     const std::function<absl::Status(HandMadeRank& rank_0)>& role) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault& fault) -> absl::Status {
    if (rank == 0) {
      BRIGADE_ASSIGN_OR_RETURN(HandMadeRank rank_0, HandMadeRank::Join(0, 2, port));
      BRIGADE_RETURN_IF_ERROR(role(rank_0));
      fault.AwaitAll();
      return absl::OkStatus();
    }
    BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(1, 2, port)));
    GlooOptions options = OptionsOf(1, 2, store);
    options.connect_deadline = how.connect_deadline;
    const auto transport = CreateGlooTransport(options);
    fault.AwaitAll();
    return transport.status();
  });
  EXPECT_OK(reports[0].status);
  EXPECT_THAT(reports[1].status, StatusIs(expected.code(), HasSubstr(expected.message())));
}

TEST(PeerSocketsTest, ARankWhoseConnectionIsClosedConnectsAgain) {
  RunAgainstRank1(absl::OkStatus(), {}, [](HandMadeRank& rank_0) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(Socket listener, Socket::Listen("127.0.0.1", 0));
    BRIGADE_RETURN_IF_ERROR(rank_0.Publish(listener.local_port()));
    for (int i = 0; i < 4; ++i) {
      BRIGADE_ASSIGN_OR_RETURN(Socket socket, AcceptOne(listener));
      if (i == 0) continue;  // closed at once, as one that makes room
      if (i == 1) BRIGADE_RETURN_IF_ERROR(socket.ReceiveFrame(SteadyTime::Now() + kNever).status());
      if (i >= 2) BRIGADE_RETURN_IF_ERROR(rank_0.HearProof(socket));
      if (i == 3) rank_0.Take(std::move(socket));
    }
    return absl::OkStatus();
  });
}

TEST(PeerSocketsTest, ARefusedConnectionIsNamedWithItsAddress) {
  const int nobody = FreePort();
  RunAgainstRank1(absl::UnavailableError(absl::StrCat("rank 0 is gone: connect 127.0.0.1:", nobody,
                                                      ": Connection refused")),
                  {}, [&](HandMadeRank& rank_0) { return rank_0.Publish(nobody); });
}

TEST(PeerSocketsTest, OneWhoAnswersInTheNameOfARankIsNotTakenForIt) {
  RunAgainstRank1(absl::UnavailableError("is not that rank: it does not know the job's secret"), {},
                  [](HandMadeRank& rank_0) -> absl::Status {
                    BRIGADE_ASSIGN_OR_RETURN(Socket listener, Socket::Listen("127.0.0.1", 0));
                    BRIGADE_RETURN_IF_ERROR(rank_0.Publish(listener.local_port()));
                    BRIGADE_ASSIGN_OR_RETURN(Socket socket, AcceptOne(listener));
                    // What it has heard, said back.
                    BRIGADE_ASSIGN_OR_RETURN(const std::string knock,
                                             socket.ReceiveFrame(SteadyTime::Now() + kNever));
                    BRIGADE_RETURN_IF_ERROR(socket.SendFrame(knock, SteadyTime::Now() + kNever));
                    char byte;
                    recv(socket.fd(), &byte, 1, 0);
                    return absl::OkStatus();
                  });
}

// The whole creation, of which the store's may be the first part, has one deadline.
TEST(PeerSocketsTest, WaitsNoLongerThanTheDeadline) {
  GlooOptions options;
  options.connect_deadline = SteadyTime::Now() + 2 * kDeadline;
  RunAgainstRank1(
      absl::DeadlineExceededError("rank 0 joined 'world' but did not connect within 1h"), options,
      [](HandMadeRank& rank_0) -> absl::Status {
        BRIGADE_ASSIGN_OR_RETURN(static Socket listener, Socket::Listen("127.0.0.1", 0));
        return rank_0.Publish(listener.local_port());
      });
}

TEST(PeerSocketsTest, WhatAPeerPublishesIsEscapedAndCutInErrors) {
  RunAgainstRank1(absl::FailedPreconditionError("rank 0 joined with \\x1b[2J\\x1b"), {},
                  [](HandMadeRank& rank_0) {
                    std::string sizes;
                    for (int i = 0; i < 100'000; ++i) sizes += "\x1b[2J";
                    return rank_0.PublishFields({sizes, "nonce", "address"});
                  });
}

TEST(PeerSocketsTest, ASilentStrangerIsClosedAfterHisTime) {
  RunAgainstRank0(
      "it said nothing that counts for 5s", [](HandMadeRank& rank_1, int port) -> absl::Status {
        BRIGADE_ASSIGN_OR_RETURN(Socket stranger, ConnectTo(port));
        const SteadyTime began = SteadyTime::Now();
        BRIGADE_RETURN_IF_ERROR(ErrorUnless(IsClosedWithin(stranger, kNever), "it was answered"));
        const absl::Duration held = SteadyTime::Now() - began;
        BRIGADE_RETURN_IF_ERROR(
            ErrorUnless(held > 0.9 * kHandshakeTimeout && held < 2 * kHandshakeTimeout,
                        absl::StrCat("closed after ", absl::FormatDuration(held))));
        BRIGADE_ASSIGN_OR_RETURN(Socket socket, rank_1.ProveTo(0));
        return rank_1.Stay(std::move(socket));
      });
}

TEST(PeerSocketsTest, SilentStrangersAreClosedWhenAllAreConnected) {
  RunAgainstRank0("", [](HandMadeRank& rank_1, int port) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(Socket stranger, ConnectTo(port));
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, rank_1.ProveTo(0));
    BRIGADE_RETURN_IF_ERROR(rank_1.Stay(std::move(socket)));
    // Rank 0 lives on, and has its transport.
    BRIGADE_RETURN_IF_ERROR(
        ErrorUnless(IsClosedWithin(stranger, 0.5 * kHandshakeTimeout), "it is still open"));
    return ErrorUnless(!ConnectTo(port).ok(), "rank 0 still listens");
  });
}

TEST(PeerSocketsTest, ARankThatOnlyConnectsClosesStrangersAtOnce) {
  RunAgainstRank1(absl::OkStatus(), {}, [](HandMadeRank& rank_0) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const int port_of_rank_1, PortOf(rank_0.store(), 1));
    BRIGADE_ASSIGN_OR_RETURN(Socket stranger, ConnectTo(port_of_rank_1));
    BRIGADE_ASSIGN_OR_RETURN(Socket listener, Socket::Listen("127.0.0.1", 0));
    BRIGADE_RETURN_IF_ERROR(rank_0.Publish(listener.local_port()));
    BRIGADE_RETURN_IF_ERROR(
        ErrorUnless(IsClosedWithin(stranger, 0.5 * kHandshakeTimeout), "it is still open"));
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, AcceptOne(listener));
    BRIGADE_RETURN_IF_ERROR(rank_0.HearProof(socket));
    rank_0.Take(std::move(socket));
    return absl::OkStatus();
  });
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Steps that the processes of a test take in turn.
struct Steps {
  std::atomic<int> done = 0;

  void Await(int step) const {
    while (done < step) absl::SleepFor(absl::Milliseconds(1));
  }
};

// Of a process that may have 256 from now on.
std::vector<Socket> TakeAllDescriptors() {
  const rlimit limit = {256, 256};
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<Socket> files;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) files.emplace_back(fd);
  return files;
}

TEST(PeerSocketsTest, WhereNoDescriptorIsLeftARankWaitsWithoutTakingTheProcessor) {
  void* const memory =
      mmap(nullptr, sizeof(Steps), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Steps& steps = *new (memory) Steps;
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault& fault) -> absl::Status {
    if (rank == 0) {
      double cpu_seconds = 0;
      std::thread other([&] {
        steps.Await(1);
        std::vector<Socket> files = TakeAllDescriptors();
        steps.done = 2;
        steps.Await(3);
        const double began = CpuSeconds();
        absl::SleepFor(absl::Seconds(1));
        cpu_seconds = CpuSeconds() - began;
        files.clear();
      });
      absl::Status created;
      const absl::StatusOr<std::string> printed = CreateRank0(port, fault, created);
      other.join();
      BRIGADE_RETURN_IF_ERROR(printed.status());
      BRIGADE_RETURN_IF_ERROR(created);
      BRIGADE_RETURN_IF_ERROR(ErrorUnless(
          absl::StrContains(*printed, "accepts nobody for now: Too many open files"), *printed));
      return ErrorUnless(cpu_seconds < 0.1, absl::StrCat("took the processor for ", cpu_seconds));
    }
    BRIGADE_ASSIGN_OR_RETURN(HandMadeRank rank_1, HandMadeRank::Join(1, 2, port));
    BRIGADE_RETURN_IF_ERROR(rank_1.Publish(0));
    BRIGADE_RETURN_IF_ERROR(PortOf(rank_1.store(), 0).status());
    steps.done = 1;
    steps.Await(2);
    std::thread connecting([&] { absl::SleepFor(absl::Milliseconds(100)), steps.done = 3; });
    absl::StatusOr<Socket> socket = rank_1.ProveTo(0);
    connecting.join();
    BRIGADE_RETURN_IF_ERROR(socket.status());
    BRIGADE_RETURN_IF_ERROR(rank_1.Stay(*std::move(socket)));
    fault.AwaitAll();
    return absl::OkStatus();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
  munmap(memory, sizeof(Steps));
}

// Rank 2 has the descriptor of its listener left, for one of two connections.
TEST(PeerSocketsTest, ARankWithoutADescriptorConnectsWhenThereIsOne) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UBSan looks at a virtual table through a pipe, for which no descriptor is left";
#endif
  void* const memory =
      mmap(nullptr, sizeof(Steps), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Steps& steps = *new (memory) Steps;
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault& fault) -> absl::Status {
    if (rank == 2) {
      BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(2, 3, port)));
      std::thread other([&] {
        steps.Await(1);
        const std::vector<Socket> files = TakeAllDescriptors();
        steps.done = 2;
        steps.Await(3);
      });
      const auto transport = CreateGlooTransport(OptionsOf(2, 3, store));
      other.join();
      fault.AwaitAll();
      return transport.status();
    }
    BRIGADE_ASSIGN_OR_RETURN(HandMadeRank self, HandMadeRank::Join(rank, 3, port));
    if (rank == 0) {
      BRIGADE_RETURN_IF_ERROR(PortOf(self.store(), 2).status());
      steps.done = 1;
    }
    steps.Await(2);
    BRIGADE_ASSIGN_OR_RETURN(Socket listener, Socket::Listen("127.0.0.1", 0));
    BRIGADE_RETURN_IF_ERROR(self.Publish(listener.local_port()));
    absl::SleepFor(absl::Milliseconds(200));
    if (rank == 0) steps.done = 3;
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, AcceptOne(listener));
    BRIGADE_RETURN_IF_ERROR(self.HearProof(socket));
    self.Take(std::move(socket));
    fault.AwaitAll();
    return absl::OkStatus();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
  munmap(memory, sizeof(Steps));
}

}  // namespace
}  // namespace brigade::collectives::testing
