#include "brigade/tests/collectives/engines/gloo/processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/internal/socket.h"
#include "brigade/device/status_macros.h"

#if defined(__SANITIZE_THREAD__)
// Gloo tells by atomics that nobody uses a buffer any more. TSan does not see them, because the
// system's Gloo is not instrumented, and takes the destruction for a race. The two tests that free
// their memory after an abort are named because TSan sometimes cannot restore the stack of Gloo's
// access.
extern "C" const char* __tsan_default_suppressions() {
  return "race:gloo::transport::tcp::UnboundBuffer::\n"
         "race:gloo::transport::tcp::Pair::\n"
         "race:default_delete<gloo::transport::UnboundBuffer>\n"
         "race:GlooFaultTest_AnAbortInTheMiddleOfASendIsHeard_Test\n"
         "race:GlooFaultTest_AfterAnErrorNothingIsWrittenToExpectedMemory_Test\n";
}
#endif

namespace brigade::collectives::testing {
namespace {

// What a process writes to its pipe.
struct Message {
  int code = 0;
  double seconds = 0;
  char text[1000] = {};
};

[[noreturn]] void RunRole(int rank, int size, int pipe_fd, SharedState& shared, const Role& role) {
  Fault fault(shared, size);
  const absl::Status status = role(rank, fault);
  Message message;
  message.code = static_cast<int>(status.code());
  message.seconds = fault.Seconds();
  std::snprintf(message.text, sizeof(message.text), "%s", std::string(status.message()).c_str());
  _exit(write(pipe_fd, &message, sizeof(message)) == sizeof(message) ? 0 : 1);
}

Report ReadReport(int pipe_fd, absl::Time deadline) {
  pollfd fd = {pipe_fd, POLLIN, 0};
  const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
  poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
  if (fd.revents == 0) return {absl::AbortedError("no report in time"), 0};
  Message message;
  if (read(pipe_fd, &message, sizeof(message)) != sizeof(message)) {
    return {absl::AbortedError("the process ended without a report"), 0};
  }
  return {absl::Status(static_cast<absl::StatusCode>(message.code), message.text), message.seconds};
}

}  // namespace

void Fault::AwaitAll() {
  awaited_ += size_;
  ++shared_.arrivals;
  while (shared_.arrivals < awaited_) absl::SleepFor(absl::Milliseconds(1));
}

std::vector<Report> RunRanks(int size, absl::Duration limit, const Role& role) {
  const absl::Time deadline = absl::Now() + limit;
  void* const memory =
      mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  SharedState& shared = *new (memory) SharedState;
  std::vector<pid_t> processes;
  std::vector<int> pipes;
  for (int rank = 0; rank < size; ++rank) {
    int fds[2];
    if (pipe(fds) != 0) std::abort();
    const pid_t process = fork();
    if (process == 0) RunRole(rank, size, fds[1], shared, role);
    close(fds[1]);
    processes.push_back(process);
    pipes.push_back(fds[0]);
  }
  // A stopped process reports nothing: it is read when all others have reported.
  std::vector<Report> reports(size);
  std::vector<int> stopped;
  for (int rank = 0; rank < size; ++rank) {
    siginfo_t info = {};
    while (true) {
      pollfd fd = {pipes[rank], POLLIN, 0};
      if (poll(&fd, 1, 50) > 0 || absl::Now() > deadline) break;
      info.si_pid = 0;
      waitid(P_PID, processes[rank], &info, WSTOPPED | WNOHANG | WNOWAIT);
      if (info.si_pid != 0) break;
    }
    reports[rank] = ReadReport(pipes[rank], info.si_pid != 0 ? absl::Now() : deadline);
  }
  for (int rank = 0; rank < size; ++rank) {
    kill(processes[rank], SIGKILL);
    int ignored = 0;
    waitpid(processes[rank], &ignored, 0);
    close(pipes[rank]);
  }
  munmap(memory, sizeof(SharedState));
  return reports;
}

int FreePort() {
  // Linux chooses ports from 32768 on. Processes begin at different ones to collide rarely.
  constexpr int kFirst = 10000, kPorts = 22000;
  static std::atomic<int> next = getpid();
  for (int attempt = 0; attempt < kPorts; ++attempt) {
    const int port = kFirst + next++ % kPorts;
    // An abstract address that is bound, by one process at a time, reserves the port. The socket
    // stays open.
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    const int length =
        std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "brigade_test_port_%d", port);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&name), bytes) == 0 &&
        internal::Socket::Listen(port).ok()) {
      return port;
    }
    close(fd);
  }
  std::abort();
}

TcpStoreOptions StoreOptions(int rank, int size, int port, absl::Duration timeout) {
  TcpStoreOptions options;
  options.rank = rank;
  options.size = size;
  options.master_port = port;
  options.timeout = timeout;
  return options;
}

absl::StatusOr<std::unique_ptr<GlooTransport>> Join(int rank, int size, int port,
                                                    absl::Duration timeout) {
  auto store = TcpStore::Create(StoreOptions(rank, size, port));
  if (!store.ok()) return store.status();
  GlooOptions options;
  options.rank = rank;
  options.size = size;
  options.store = *std::move(store);
  options.timeout = timeout;
  return CreateGlooTransport(options);
}

absl::Status ExchangeInRing(Transport& transport, int64_t bytes) {
  const int size = transport.size();
  const int to = (transport.rank() + 1) % size;
  const int from = (transport.rank() + size - 1) % size;
  const std::vector<char> sent(bytes, static_cast<char>(1 + transport.rank()));
  std::vector<char> received(bytes, 0);
  BRIGADE_RETURN_IF_ERROR(transport.Expect(from, received.data(), bytes));
  BRIGADE_RETURN_IF_ERROR(transport.Send(to, sent.data(), bytes));
  BRIGADE_RETURN_IF_ERROR(transport.Await(from));
  BRIGADE_RETURN_IF_ERROR(transport.Flush());
  if (received == std::vector<char>(bytes, static_cast<char>(1 + from))) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("wrong bytes from rank ", from));
}

}  // namespace brigade::collectives::testing
