// What a connection may bring after its proof, or while pairs are made: it ends in the group's
// error, and ends no process.

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/hand_made_rank.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::collectives::internal::Socket;
using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// As the kernel does for a process that is killed with bytes unread.
void Reset(Socket& socket) {
  const linger at_once = {1, 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket.Close();
}

// Reads until the other end closes the connection, or its process has ended.
void AwaitEnd(const Socket& socket) {
  char bytes[4096];
  pollfd fd = {socket.fd(), POLLIN, 0};
  while (poll(&fd, 1, -1) > 0 && recv(socket.fd(), bytes, sizeof(bytes), 0) > 0) {
  }
}

absl::Status AwaitByte(Transport& transport, int from) {
  char byte = 0;
  BRIGADE_RETURN_IF_ERROR(transport.Expect(from, &byte, 1));
  return transport.Await(from);
}

// Rank 0 has taken the connection of rank 1, and waits for rank 2; then it hands a reset socket to
// Gloo, which throws.
TEST(ProvedPairTest, ARankThatDiesBeforeGloosTurnIsNamed) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(3, [&](int rank, Fault&) -> absl::Status {
    if (rank == 0) {
      BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(0, 3, port)));
      return CreateGlooTransport(OptionsOf(0, 3, store)).status();
    }
    BRIGADE_ASSIGN_OR_RETURN(HandMadeRank self, HandMadeRank::Join(rank, 3, port));
    BRIGADE_RETURN_IF_ERROR(self.Publish(0));
    if (rank == 2) BRIGADE_RETURN_IF_ERROR(self.store().Get("reset", kNever).status());
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, self.ProveTo(0));
    BRIGADE_RETURN_IF_ERROR(self.BeTaken(socket));
    if (rank == 1) {
      Reset(socket);
      return self.store().Set("reset", "");
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(reports[0].status,
              StatusIs(absl::StatusCode::kUnavailable, StartsWith("rank 1 is gone: ")));
  EXPECT_OK(reports[1].status);
  EXPECT_OK(reports[2].status);
}

// It closes or resets its connection when it has said which rank it is.
TEST(ProvedPairTest, ARankThatDiesBehindItsProofEndsNoProcess) {
  for (int round = 0; round < 10; ++round) {
    const int port = FreePort();
    const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault&) -> absl::Status {
      if (rank == 0) {
        BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(0, 2, port)));
        GlooOptions options = OptionsOf(0, 2, store);
        options.connect_timeout = kDeadline;
        BRIGADE_ASSIGN_OR_RETURN(const auto transport, CreateGlooTransport(options));
        return AwaitByte(*transport, 1);
      }
      BRIGADE_ASSIGN_OR_RETURN(HandMadeRank rank_1, HandMadeRank::Join(1, 2, port));
      BRIGADE_RETURN_IF_ERROR(rank_1.Publish(0));
      BRIGADE_ASSIGN_OR_RETURN(Socket socket, rank_1.ProveTo(0));
      BRIGADE_RETURN_IF_ERROR(socket.SendFrame("1", absl::Now()));
      if (round % 2 == 0) Reset(socket);
      return absl::OkStatus();
    });
    EXPECT_THAT(reports[0].status.code(), ::testing::AnyOf(absl::StatusCode::kUnavailable,
                                                           absl::StatusCode::kDeadlineExceeded))
        << reports[0].status;
    EXPECT_THAT(std::string(reports[0].status.message()), StartsWith("rank 1 "));
    EXPECT_OK(reports[1].status);
  }
}

// A message for which nothing is posted: Gloo's thread throws when it has read the preamble.
TEST(ProvedPairTest, WhatGloosThreadThrowsIsTheErrorOfTheGroup) {
  const int port = FreePort();
  const std::vector<Report> reports = RunRanks(2, [&](int rank, Fault&) -> absl::Status {
    if (rank == 0) {
      BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(0, 2, port)));
      BRIGADE_ASSIGN_OR_RETURN(const auto transport, CreateGlooTransport(OptionsOf(0, 2, store)));
      return AwaitByte(*transport, 1);
    }
    BRIGADE_ASSIGN_OR_RETURN(HandMadeRank rank_1, HandMadeRank::Join(1, 2, port));
    BRIGADE_RETURN_IF_ERROR(rank_1.Publish(0));
    BRIGADE_ASSIGN_OR_RETURN(Socket socket, rank_1.ProveTo(0));
    BRIGADE_RETURN_IF_ERROR(rank_1.BeTaken(socket));
    // nbytes, opcode (data for an unbound buffer), slot, offset, length, roffset.
    const std::array<size_t, 6> preamble = {sizeof(preamble) + 8, 1, 4711, 0, 8, 0};
    send(socket.fd(), preamble.data(), sizeof(preamble), MSG_NOSIGNAL);
    AwaitEnd(socket);
    return absl::OkStatus();
  });
  EXPECT_THAT(reports[0].status,
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(StartsWith("rank 1 is gone: "), HasSubstr("localPendingRecv_"))));
  EXPECT_OK(reports[1].status);
}

// Ports at which somebody listens on this address, in network order.
std::vector<int> ListeningPorts(uint32_t host) {
  std::vector<int> ports;
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    constexpr char kListens[] = "0A";
    uint32_t its_host = 0, its_port = 0;
    if (fields.size() < 4 || fields[3] != kListens) continue;
    const std::vector<std::string> address = absl::StrSplit(fields[1], ':');
    if (address.size() == 2 && absl::SimpleHexAtoi(address[0], &its_host) && its_host == host &&
        absl::SimpleHexAtoi(address[1], &its_port)) {
      ports.push_back(static_cast<int>(its_port));
    }
  }
  return ports;
}

// Gloo listens for a moment while it makes a pair, before the pair is one of ours.
TEST(ProvedPairTest, WhoConnectsAndResetsWhilePairsAreMadeEndsNoProcess) {
  constexpr int kRanks = 3, kGroups = 20;
  const int port = FreePort();
  // An address of the loopback that no other test listens on.
  const std::string host = absl::StrCat("127.", 1 + port / 256 % 200, ".", port % 256, ".7");
  const std::vector<Report> reports =
      RunRanks(kRanks + 1, [&](int rank, Fault& fault) -> absl::Status {
        if (rank < kRanks) {
          BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(rank, kRanks, port)));
          for (int group = 0; group < kGroups; ++group) {
            GlooOptions options = OptionsOf(rank, kRanks, store);
            options.prefix = absl::StrCat("group ", group);
            options.host = host;
            BRIGADE_ASSIGN_OR_RETURN(const auto transport, CreateGlooTransport(options));
            BRIGADE_RETURN_IF_ERROR(ExchangeInRing(*transport, 100));
          }
          fault.AwaitAll();
          return absl::OkStatus();
        }
        std::atomic<bool> is_over = false;
        std::thread awaiting([&] { fault.AwaitAll(), is_over = true; });
        while (!is_over) {
          for (const int each : ListeningPorts(inet_addr(host.c_str()))) {
            auto socket = Socket::Connect(host, each, absl::Now() + kNever);
            if (socket.ok()) Reset(*socket);
          }
        }
        awaiting.join();
        return absl::OkStatus();
      });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

}  // namespace
}  // namespace brigade::collectives::testing
