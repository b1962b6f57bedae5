// What a connection may bring after its proof, or while pairs are made: it ends in the group's
// error, and ends no process.

#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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
#include "brigade/collectives/bootstrap/file_store.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
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
      return self.store().Set("reset", "", kNever);
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
  for (int round = 0; round < 6; ++round) {
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
      BRIGADE_RETURN_IF_ERROR(socket.SendFrame("1", device::SteadyTime::Now()));
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

// Whatever listens, of Gloo or of the ranks, has strangers who are gone when they are accepted.
TEST(ProvedPairTest, WhoConnectsAndResetsWhileGroupsFormEndsNoProcess) {
  constexpr int kRanks = 3, kGroups = 10;
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
            auto socket = Socket::Connect(host, each, device::SteadyTime::Now() + kNever);
            if (socket.ok()) Reset(*socket);
          }
        }
        awaiting.join();
        return absl::OkStatus();
      });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

#if !defined(__SANITIZE_THREAD__)  // which has an epoll_ctl of its own
// Whether Gloo's listening sockets are attacked.
std::atomic<bool> attacks = false;
std::atomic<int> attacked = 0;

// Whether this thread has registered such a socket, and holds the mutex of its pair still.
thread_local bool registers = false;

// Connects to a socket that listens, and resets that.
void Attack(int listener) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes);
  Socket stranger(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(stranger.fd(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0) ++attacked;
  Reset(stranger);
  registers = true;
}

// A pair is attacked when Gloo has registered it, and before it is one of ours.
TEST(ProvedPairTest, NoEventMeetsAPairThatIsNotYetWhole) {
  constexpr int kSize = 100;
  const std::string folder = ::testing::TempDir() + "/proved_pair_test";
  const std::vector<Report> reports = RunRanks(1, [&](int, Fault&) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(auto store, FileStore::Create({.folder = folder}));
    GlooOptions options = OptionsOf(0, kSize, store);
    options.host = "127.0.0.1";
    options.connect_timeout = absl::ZeroDuration();
    attacks = true;
    const absl::Status status = CreateGlooTransport(options).status();
    if (!absl::IsDeadlineExceeded(status)) return status;
    return attacked >= kSize - 1
               ? absl::OkStatus()
               : absl::InternalError(absl::StrCat(attacked.load(), " were attacked"));
  });
  EXPECT_OK(reports[0].status);
}
#endif

}  // namespace
}  // namespace brigade::collectives::testing

#if !defined(__SANITIZE_THREAD__)
// These take the places of the C library's, for Gloo too.
extern "C" int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  using ::brigade::collectives::testing::Attack;
  using ::brigade::collectives::testing::attacks;
  const auto result = static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, fd, event));
  int listens = 0;
  socklen_t bytes = sizeof(listens);
  if (attacks && operation == EPOLL_CTL_ADD &&
      getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens != 0) {
    Attack(fd);
  }
  return result;
}

// Gloo's thread has a moment to see what is registered, before the pair's constructor goes on.
extern "C" int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  using ::brigade::collectives::testing::registers;
  using Unlock = int (*)(pthread_mutex_t*);
  static const auto unlock = reinterpret_cast<Unlock>(dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
  const int result = unlock(mutex);
  if (std::exchange(registers, false)) usleep(500);
  return result;
}
#endif
