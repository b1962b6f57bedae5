#include "brigade/collectives/bootstrap/internal/store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/printable.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {
namespace {

using ::brigade::device::Printable;
using ::brigade::device::SteadyTime;

// Of one client, before the others are heard.
constexpr size_t kBytesAtOnce = 256 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(Socket listener,
                                                                const StoreServerOptions& options) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot make a pipe for the store's server: ", std::strerror(errno)));
  }
  return std::unique_ptr<StoreServer>(
      new StoreServer(std::move(listener), pipe_fds[0], pipe_fds[1], options));
}

StoreServer::StoreServer(Socket listener, int stop_read, int stop_write,
                         const StoreServerOptions& options)
    : listener_(std::move(listener)),
      port_(listener_.local_port()),
      strangers_(port_),
      protocol_(options, [this](const std::string& address,
                                const std::string& why) { strangers_.Refused(address, why); }),
      size_(options.size),
      stop_read_(stop_read),
      stop_write_(stop_write),
      thread_([this] { Run(); }) {}

void StoreServer::Stop(const absl::Status& reason, absl::Duration linger) {
  if (!thread_.joinable()) return;
  {
    device::MutexLock lock(stop_mutex_);
    stop_reason_ = reason;
    stop_time_ = SteadyTime::Now() + linger;
  }
  stop_write_.Close();
  thread_.join();
}

absl::Status StoreServer::GiveUp(const absl::Status& reason) {
  {
    device::MutexLock lock(stop_mutex_);
    gives_up_ = true;
  }
  Stop(reason, kLinger);
  return protocol_.failure();
}

bool StoreServer::StopsNow() {
  device::MutexLock lock(stop_mutex_);
  if (stop_reason_.ok()) return false;
  if (gives_up_ && protocol_.failure().ok()) {
    const std::string& refusal = protocol_.refusal();
    protocol_.FailAll(refusal.empty()
                          ? stop_reason_
                          : absl::Status(stop_reason_.code(),
                                         Printable(absl::StrCat(stop_reason_.message(),
                                                                "; one was refused: ", refusal))));
  }
  const bool all_know = connections_.empty() &&
                        (protocol_.failure().ok() || gives_up_ || protocol_.hellos() >= size_);
  if (!all_know && SteadyTime::Now() < stop_time_) return false;
  if (protocol_.failure().ok()) protocol_.FailAll(stop_reason_);
  return true;
}

// Whether who comes now belongs to the next group. Of one that could not form all are to hear.
bool StoreServer::IsClosed() {
  device::MutexLock lock(stop_mutex_);
  return !stop_reason_.ok() && protocol_.failure().ok();
}

int StoreServer::PollTimeoutMs() {
  SteadyTime next = std::min(SteadyTime::Now() + absl::Minutes(1), protocol_.NextDeadline());
  if (accepts_again_ > SteadyTime::Now()) next = std::min(next, accepts_again_);
  {
    device::MutexLock lock(stop_mutex_);
    next = std::min(next, stop_time_);
  }
  const absl::Duration left = std::max(next - SteadyTime::Now(), absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

void StoreServer::Run() {
  std::vector<pollfd> fds;
  while (!StopsNow()) {
    // Those who wait where no descriptor is left are looked at later.
    const bool accepts = SteadyTime::Now() >= accepts_again_ && !IsClosed();
    fds.assign({{stop_read_.fd(), POLLIN, 0},
                {listener_.fd(), static_cast<short>(accepts ? POLLIN : 0), 0}});
    for (const Connection& each : connections_) fds.push_back({each.socket.fd(), POLLIN, 0});
    if (poll(fds.data(), fds.size(), PollTimeoutMs()) < 0) continue;  // a signal
    size_t at = 2;
    for (Connection& each : connections_) {
      if (fds[at++].revents != 0) Hear(each);
    }
    protocol_.Expire();
    CloseConnections();
    if (fds[1].revents != 0) AcceptClients();
    if (fds[0].revents != 0) stop_read_.Close();  // heard; poll ignores it from now on
  }
}

void StoreServer::AcceptClients() {
  absl::StatusOr<Socket> socket = listener_.Accept();
  const bool is_full = absl::IsResourceExhausted(socket.status());
  const bool made_room = protocol_.MakeRoom(socket.status());
  CloseConnections();
  if (is_full && !made_room) {
    strangers_.AcceptsNobody(socket.status().message());
    accepts_again_ = SteadyTime::Now() + kAcceptPause;
  }
  if (!socket.ok()) return;
  strangers_.Accepts();
  Connection& connection = connections_.emplace_back(*std::move(socket));
  connection.client = &protocol_.Accept(
      connection.socket.peer_address(),
      [&connection](absl::string_view frame, absl::Duration timeout) {
        return connection.socket.SendFrame(frame, SteadyTime::Now() + timeout).ok();
      });
}

void StoreServer::Hear(Connection& connection) {
  StoreProtocol::Client& client = *connection.client;
  if (client.closed) return;
  const absl::Status received = connection.socket.Receive(
      client.received, client.handshake.is_proved() ? kBytesAtOnce : kMostUnprovedBytes);
  protocol_.Hear(client, /*has_gone=*/!received.ok());
}

void StoreServer::CloseConnections() {
  connections_.remove_if([](const Connection& each) { return each.client->closed; });
  protocol_.ForgetClosed();
}

}  // namespace brigade::collectives::internal
