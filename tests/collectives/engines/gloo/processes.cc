#include "brigade/tests/collectives/engines/gloo/processes.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

#if defined(__SANITIZE_THREAD__)
// Gloo tells by atomics that nobody uses a buffer any more. TSan does not see them, because the
// system's Gloo is not instrumented, and takes the destruction for a race. The two tests that free
// their memory after an abort are named because TSan sometimes cannot restore the stack of Gloo's
// access. The same is true of the system's Abseil, whose statuses count their owners.
extern "C" const char* __tsan_default_suppressions() {
  return "race:gloo::transport::tcp::UnboundBuffer::\n"
         "race:gloo::transport::tcp::Pair::\n"
         "race:default_delete<gloo::transport::UnboundBuffer>\n"
         "race:absl::*::Status::UnrefNonInlined\n"
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

// More arrivals than any test makes.
constexpr int64_t kRoleIsOver = int64_t{1} << 32;

[[noreturn]] void RunRole(int rank, int size, int pipe_fd, SharedState& shared, const Role& role) {
  Fault fault(shared, size);
  const absl::Status status = role(rank, fault);
  shared.arrivals += kRoleIsOver;
  Message message;
  message.code = static_cast<int>(status.code());
  message.seconds = fault.Seconds();
  std::snprintf(message.text, sizeof(message.text), "%s", std::string(status.message()).c_str());
  _exit(write(pipe_fd, &message, sizeof(message)) == sizeof(message) ? 0 : 1);
}

Report AwaitReport(pid_t process, int pipe_fd) {
  pollfd fd = {pipe_fd, POLLIN, 0};
  while (poll(&fd, 1, 50) <= 0) {
    siginfo_t info = {};
    waitid(P_PID, process, &info, WSTOPPED | WNOHANG | WNOWAIT);
    if (info.si_pid != 0) return {absl::AbortedError("the process is stopped"), 0};
  }
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

std::vector<Report> RunRanks(int size, const Role& role) {
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
  std::vector<Report> reports;
  for (int rank = 0; rank < size; ++rank) {
    reports.push_back(AwaitReport(processes[rank], pipes[rank]));
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
  for (const int family : {AF_INET6, AF_INET}) {
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1, off = 0;
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_in6 address = {};  // any address, any port; a sockaddr_in has its port at that place
    address.sin6_family = static_cast<sa_family_t>(family);
    socklen_t bytes = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0) {
      // The socket stays open, but never listens: from now on it shares the port with a listener
      // that also sets SO_REUSEADDR, as the store's does.
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      return ntohs(address.sin6_port);
    }
    close(fd);  // there is no IPv6
  }
  std::abort();
}

TcpStoreOptions StoreOptions(int rank, int size, int port, absl::Duration timeout) {
  TcpStoreOptions options;
  options.rank = rank;
  options.size = size;
  options.master_port = port;
  options.timeout = timeout;
  options.job.secret = JobSecret::FromHex(std::string(64, '7')).value();
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
  options.connect_timeout = kNever;
  options.timeout = timeout;
  return CreateGlooTransport(options);
}

absl::Status ExchangeInRing(Transport& transport, int64_t bytes) {
  const int size = transport.size();
  const int to = (transport.rank() + 1) % size;
  const int from = (transport.rank() + size - 1) % size;
  // After an error the transport may use them until its destruction.
  static std::vector<char> sent, received;
  sent.assign(bytes, static_cast<char>(1 + transport.rank()));
  received.assign(bytes, 0);
  BRIGADE_RETURN_IF_ERROR(transport.Expect(from, received.data(), bytes));
  BRIGADE_RETURN_IF_ERROR(transport.Send(to, sent.data(), bytes));
  BRIGADE_RETURN_IF_ERROR(transport.Await(from));
  BRIGADE_RETURN_IF_ERROR(transport.Flush());
  if (received == std::vector<char>(bytes, static_cast<char>(1 + from))) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("wrong bytes from rank ", from));
}

}  // namespace brigade::collectives::testing
