#include "brigade/monitor/dashboard/loopback_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/threads/deadline.h"
#include "brigade/device/threads/start_thread.h"

namespace brigade::monitor {
namespace {

using Clock = std::chrono::steady_clock;

// How long what comes behind a request is taken and thrown away: closed at once, with that unread,
// a connection would lose the answer.
constexpr absl::Duration kLinger = absl::Seconds(1);
constexpr size_t kMostLingerBytes = 256 * 1024;
// Until a process with too many open files is looked at again.
constexpr int kFullMs = 100;
// A nice value: what is shown is worth less than what is trained.
constexpr int kNice = 10;

// A descriptor until it has an owner.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bool WouldWait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

struct LoopbackServer::Connection {
  enum class State : uint8_t { kReads, kSends, kLingers };

  explicit Connection(int fd_, Clock::time_point deadline_) : fd(fd_), deadline(deadline_) {}
  ~Connection() { close(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const int fd;
  State state = State::kReads;
  Clock::time_point deadline;
  std::string request;
  // The answer, and how much of both is sent.
  std::string head;
  std::shared_ptr<const std::string> body;
  size_t sent = 0;
  size_t lingered = 0;
};

absl::StatusOr<std::unique_ptr<LoopbackServer>> LoopbackServer::Create(
    LoopbackServerOptions options) {
  const auto failed = [&] {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on 127.0.0.1:", options.port));
  };
  if (options.port < 0 || options.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("the port is ", options.port, "; it must be 0 to 65535"));
  }
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  Descriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (listener.get() < 0 || stop.get() < 0) return failed();
  // Connections of a training before this one that are closing do not keep the port.
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(options.port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), any, size) != 0 || listen(listener.get(), 64) != 0 ||
      getsockname(listener.get(), any, &size) != 0) {
    return failed();
  }
  const int port = ntohs(address.sin_port);
  std::unique_ptr<LoopbackServer> server(
      new LoopbackServer(std::move(options), listener.release(), stop.release(), port));
  if (!server->thread_.joinable()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread can be started to serve 127.0.0.1:", port));
  }
  return server;
}

LoopbackServer::LoopbackServer(LoopbackServerOptions options, int listener, int stop, int port)
    : options_(std::move(options)),
      listener_(listener),
      stop_(stop),
      port_(port),
      thread_(device::StartThread([this] { Serve(); })) {}

LoopbackServer::~LoopbackServer() {
  const uint64_t one = 1;
  // Into an event that nobody else writes to: it has room.
  const ssize_t written = write(stop_, &one, sizeof(one));
  static_cast<void>(written);
  if (thread_.joinable()) thread_.join();
  connections_.clear();
  close(listener_);
  close(stop_);
}

void LoopbackServer::Serve() {
  // Of this thread alone, on Linux. It serves too where it may not.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
  while (true) {
    std::vector<pollfd> polled = {{stop_, POLLIN, 0}, {is_full_ ? -1 : listener_, POLLIN, 0}};
    int wait_ms = is_full_ ? kFullMs : -1;
    const Clock::time_point now = Clock::now();
    for (const Connection& connection : connections_) {
      const bool sends = connection.state == Connection::State::kSends;
      polled.push_back({connection.fd, static_cast<short>(sends ? POLLOUT : POLLIN), 0});
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(connection.deadline - now).count();
      const int left_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 1000 * 1000));
      wait_ms = wait_ms < 0 ? left_ms : std::min(wait_ms, left_ms);
    }
    if (poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR) {
      // No memory in the kernel: a moment later there may be some.
      std::this_thread::sleep_for(std::chrono::milliseconds(kFullMs));
    }
    if (polled[0].revents != 0) return;
    is_full_ = false;
    // Before new ones come, which have no place in `polled`.
    size_t place = 2;
    const Clock::time_point then = Clock::now();
    for (auto it = connections_.begin(); it != connections_.end(); ++place) {
      const short events = polled[place].revents;
      const bool goes_on = (events == 0 || Advance(*it, events)) && then < it->deadline;
      it = goes_on ? std::next(it) : connections_.erase(it);
    }
    if (polled[1].revents != 0) Accept();
  }
}

void LoopbackServer::Accept() {
  // A few at a time, so that those that are there come to their turn.
  for (size_t i = 0; i < options_.most_connections; ++i) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      is_full_ = !WouldWait() && errno != ECONNABORTED;
      return;
    }
    if (connections_.size() >= options_.most_connections) connections_.pop_front();
    connections_.emplace_back(fd, device::DeadlineAfter(options_.request_patience));
  }
}

bool LoopbackServer::Advance(Connection& connection, short events) {
  switch (connection.state) {
    case Connection::State::kReads:
      return ReadHead(connection);
    case Connection::State::kSends:
      return (events & (POLLERR | POLLHUP)) == 0 && Send(connection);
    case Connection::State::kLingers:
      break;
  }
  char ignored[4096];
  const ssize_t got = recv(connection.fd, ignored, sizeof(ignored), 0);
  if (got < 0) return WouldWait();
  connection.lingered += static_cast<size_t>(got);
  return got > 0 && connection.lingered <= kMostLingerBytes;
}

bool LoopbackServer::ReadHead(Connection& connection) {
  char bytes[4096];
  const ssize_t got = recv(connection.fd, bytes, sizeof(bytes), 0);
  if (got < 0) return WouldWait();
  if (got == 0) return false;
  std::string& request = connection.request;
  // The empty line may be cut.
  const size_t searched = request.size() < 3 ? 0 : request.size() - 3;
  request.append(bytes, static_cast<size_t>(got));
  const size_t end = std::min(request.find("\r\n\r\n", searched), request.find("\n\n", searched));
  if (std::min(end, request.size()) > options_.most_head_bytes) {
    Answer(connection, Refusal("431 Request Header Fields Too Large", "the request is too long"),
           false);
  } else if (end == std::string::npos) {
    return true;
  } else {
    const HttpRequest parsed = ParseRequest(absl::string_view(request).substr(0, end + 1));
    Answer(connection, parsed.refusal != nullptr ? *parsed.refusal : options_.handler(parsed.path),
           parsed.is_head);
  }
  return Send(connection);
}

void LoopbackServer::Answer(Connection& connection, const HttpResponse& response, bool is_head) {
  connection.state = Connection::State::kSends;
  connection.deadline = device::DeadlineAfter(options_.answer_patience);
  connection.head = HeadOf(response);
  connection.body = is_head ? std::make_shared<const std::string>() : response.body;
  connection.request.clear();
  connection.request.shrink_to_fit();
}

bool LoopbackServer::Send(Connection& connection) {
  const std::string& head = connection.head;
  const std::string& body = *connection.body;
  while (connection.sent < head.size() + body.size()) {
    const bool is_head = connection.sent < head.size();
    absl::string_view rest = is_head ? head : body;
    rest.remove_prefix(is_head ? connection.sent : connection.sent - head.size());
    const ssize_t sent = send(connection.fd, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0) return WouldWait();
    connection.sent += static_cast<size_t>(sent);
  }
  connection.body = nullptr;
  connection.head.clear();
  connection.state = Connection::State::kLingers;
  connection.deadline = device::DeadlineAfter(kLinger);
  return shutdown(connection.fd, SHUT_WR) == 0;
}

}  // namespace brigade::monitor
