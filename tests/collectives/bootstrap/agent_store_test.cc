// Ranks that find rank 0 by the store of torchrun's agent: a stand-in for it, in a process of its
// own, which may hold what a group before has left there, or what a stranger has.
// tests/examples/gpt:train_torchrun_test runs the real one.

#include <poll.h>
#include <sys/socket.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/internal/torch_store.h"
#include "brigade/collectives/bootstrap/tcp_store.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::collectives::internal::Socket;
using ::brigade::collectives::internal::TorchStore;
using ::brigade::device::SteadyTime;
using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kKey[] = "brigade/test/port of rank 0";

// The requests of PyTorch's TCPStore that a rank makes.
class Agent {
 public:
  // What is in it already is read over `readers` connections before it is replaced.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(int port,
                                                      std::map<std::string, std::string> values,
                                                      int readers) {
    BRIGADE_ASSIGN_OR_RETURN(Socket listener, Socket::Listen("127.0.0.1", port));
    return std::unique_ptr<Agent>(new Agent(std::move(listener), std::move(values), readers));
  }

  ~Agent() {
    {
      device::MutexLock lock(mutex_);
      stops_ = true;
      changed_.SignalAll();
      for (const auto& connection : connections_) shutdown(connection->fd(), SHUT_RDWR);
    }
    shutdown(listener_.fd(), SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  Agent(Socket listener, std::map<std::string, std::string> values, int readers)
      : values_(std::move(values)),
        unread_(readers),
        listener_(std::move(listener)),
        acceptor_([this] { Accept(); }) {}

  void Accept() {
    while (true) {
      pollfd poll_fd = {listener_.fd(), POLLIN, 0};
      poll(&poll_fd, 1, -1);
      absl::StatusOr<Socket> accepted = listener_.Accept();
      device::MutexLock lock(mutex_);
      if (stops_) return;
      if (!accepted.ok()) continue;
      connections_.push_back(std::make_unique<Socket>(*std::move(accepted)));
      Socket& socket = *connections_.back();
      threads_.emplace_back([this, &socket] {
        Serve(socket).IgnoreError();
        shutdown(socket.fd(), SHUT_RDWR);
      });
    }
  }

  static absl::StatusOr<uint64_t> Number(Socket& socket, int bytes) {
    BRIGADE_ASSIGN_OR_RETURN(const std::string text,
                             socket.Receive(bytes, SteadyTime::Now() + kNever));
    uint64_t number = 0;
    for (int i = bytes; i-- > 0;) number = number << 8 | static_cast<unsigned char>(text[i]);
    return number;
  }

  static absl::StatusOr<std::string> Text(Socket& socket) {
    BRIGADE_ASSIGN_OR_RETURN(const uint64_t bytes, Number(socket, 8));
    return socket.Receive(bytes, SteadyTime::Now() + kNever);
  }

  static absl::Status Answer(Socket& socket, uint64_t number, int bytes, const std::string& text) {
    std::string answer;
    for (int i = 0; i < bytes; ++i) answer.push_back(static_cast<char>(number >> (8 * i)));
    return socket.Send(answer + text, SteadyTime::Now() + kNever);
  }

  absl::Status Serve(Socket& socket) {
    bool is_valid = false, has_read = false;
    while (true) {
      BRIGADE_ASSIGN_OR_RETURN(const uint64_t request, Number(socket, 1));
      if (request == 0) {
        BRIGADE_ASSIGN_OR_RETURN(const uint64_t magic, Number(socket, 4));
        is_valid = magic == 0x3C85F7CE;
      } else if (!is_valid) {
        return absl::InvalidArgumentError("no magic number");
      } else if (request == 1) {
        BRIGADE_ASSIGN_OR_RETURN(const std::string key, Text(socket));
        BRIGADE_ASSIGN_OR_RETURN(const std::string value, Text(socket));
        device::MutexLock lock(mutex_);
        while (!stops_ && unread_ > 0) changed_.Wait(mutex_);
        values_[key] = value;
        changed_.SignalAll();
      } else if (request == 3) {
        BRIGADE_ASSIGN_OR_RETURN(const std::string key, Text(socket));
        device::MutexLock lock(mutex_);
        if (!std::exchange(has_read, true)) --unread_;
        changed_.SignalAll();
        BRIGADE_RETURN_IF_ERROR(Answer(socket, values_[key].size(), 8, values_[key]));
      } else if (request == 6) {
        BRIGADE_ASSIGN_OR_RETURN(const uint64_t keys, Number(socket, 8));
        if (keys != 1) return absl::InvalidArgumentError("not one key");
        BRIGADE_ASSIGN_OR_RETURN(const std::string key, Text(socket));
        device::MutexLock lock(mutex_);
        while (!stops_ && values_.count(key) == 0) changed_.Wait(mutex_);
        BRIGADE_RETURN_IF_ERROR(Answer(socket, 0, 1, ""));
      } else {
        return absl::InvalidArgumentError("no such request");
      }
    }
  }

  device::Mutex mutex_;
  device::CondVar changed_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
  // Connections that are still to read before anything is set.
  int unread_ ABSL_GUARDED_BY(mutex_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Socket>> connections_ ABSL_GUARDED_BY(mutex_);
  Socket listener_;
  // Of connections; grows in `acceptor_` alone.
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

TcpStoreOptions Options(int rank, int size, int agent_port, absl::Duration timeout = kNever) {
  TcpStoreOptions options = StoreOptions(rank, size, /*port=*/0, timeout);
  options.agent_store = {.host = "127.0.0.1", .port = agent_port, .key = kKey};
  return options;
}

// Creates the store of a rank, keeps it until all have theirs, and exchanges a value.
absl::Status Meet(const TcpStoreOptions& options, Fault& fault) {
  const auto store = TcpStore::Create(options);
  absl::Status met = store.status();
  if (met.ok()) met = (*store)->Set(absl::StrCat("met/", options.rank), "", kNever);
  if (met.ok()) met = GetOfAllRanks(**store, "met/", options.size, kNever, "").status();
  fault.AwaitAll();
  return met;
}

// Three ranks; process 3 is the agent, in whose store `told` is under the key.
std::vector<Report> RunWithAgent(
    const std::map<std::string, std::string>& told,
    const std::function<TcpStoreOptions(int rank, int port)>& options) {
  const int port = FreePort();
  return RunRanks(4, [&](int rank, Fault& fault) -> absl::Status {
    if (rank < 3) return Meet(options(rank, port), fault);
    BRIGADE_ASSIGN_OR_RETURN(auto agent, Agent::Start(port, told, told.empty() ? 0 : 2));
    fault.AwaitAll();
    return absl::OkStatus();
  });
}

TEST(AgentStoreTest, RanksFindEachOther) {
  for (const Report& report :
       RunWithAgent({}, [](int rank, int port) { return Options(rank, 3, port); })) {
    EXPECT_OK(report.status);
  }
}

TEST(AgentStoreTest, RanksOfOneHostNeedNoSecret) {
  for (const Report& report : RunWithAgent({}, [](int rank, int port) {
         TcpStoreOptions options = Options(rank, 3, port);
         options.job.secret.reset();
         return options;
       })) {
    EXPECT_OK(report.status);
  }
}

// The group before is gone, its port with it, or another program's by now, or a stranger has told
// one. The ranks look again until rank 0 has told its own.
TEST(AgentStoreTest, ReplacesWhatWasToldBefore) {
  const int nobodys = FreePort();
  const int others = FreePort();
  Socket silent = Socket::Listen("127.0.0.1", others).value();
  for (const std::string& told :
       {absl::StrCat(nobodys), absl::StrCat(others), std::string("-1"), std::string(),
        std::string("\x1b[2J"), std::string(1 << 20, '7')}) {
    for (const Report& report :
         RunWithAgent({{kKey, told}}, [](int rank, int port) { return Options(rank, 3, port); })) {
      EXPECT_OK(report.status) << told.substr(0, 100);
    }
  }
}

// Which has the same secret, and hears strangers.
TEST(AgentStoreTest, APortOfAnotherJobDisturbsNeither) {
  const int port = FreePort(), others = FreePort();
  const std::vector<Report> reports = RunRanks(6, [&](int rank, Fault& fault) -> absl::Status {
    if (rank < 3) return Meet(Options(rank, 3, port), fault);
    if (rank == 3) {
      BRIGADE_ASSIGN_OR_RETURN(auto agent,
                               Agent::Start(port, {{kKey, absl::StrCat(others)}}, /*readers=*/3));
      fault.AwaitAll();
      return absl::OkStatus();
    }
    if (rank == 5) {
      // Comes when rank 0 has told its port; until then ranks 1 and 2 knock at the other job's.
      const SteadyTime deadline = SteadyTime::Now() + kNever;
      absl::StatusOr<Socket> socket = absl::UnavailableError("");
      while (!socket.ok()) socket = Socket::Connect("127.0.0.1", port, deadline);
      BRIGADE_ASSIGN_OR_RETURN(auto agent, TorchStore::Create(*std::move(socket), deadline));
      std::string told;
      do {
        BRIGADE_ASSIGN_OR_RETURN(told, agent.Get(kKey, deadline));
      } while (told == absl::StrCat(others));
    }
    return Meet(StoreOptions(rank - 4, 2, others), fault);
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

TEST(AgentStoreTest, ErrorsNameWhatIsMissing) {
  const int nobodys = FreePort();
  const std::vector<Report> no_agent = RunRanks(
      2, [&](int rank, Fault& fault) { return Meet(Options(rank, 2, nobodys, kDeadline), fault); });
  const std::string name =
      absl::StrCat("MASTER_ADDR=127.0.0.1, MASTER_PORT=", nobodys, " of torchrun's store");
  EXPECT_THAT(no_agent[0].status,
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("rank 0 cannot tell its port at " + name),
                             HasSubstr("Connection refused"))));
  EXPECT_THAT(no_agent[1].status,
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("cannot reach the store of rank 0 at " + name),
                             HasSubstr("Connection refused"))));

  // Rank 0 never comes.
  const int port = FreePort();
  const std::vector<Report> no_rank = RunRanks(2, [&](int rank, Fault& fault) -> absl::Status {
    if (rank == 1) return Meet(Options(rank, 2, port, kDeadline), fault);
    BRIGADE_ASSIGN_OR_RETURN(auto agent, Agent::Start(port, {}, /*readers=*/0));
    fault.AwaitAll();
    return absl::OkStatus();
  });
  EXPECT_THAT(no_rank[1].status.message(), HasSubstr("rank 0 has not told its port"));
}

}  // namespace
}  // namespace brigade::collectives::testing
