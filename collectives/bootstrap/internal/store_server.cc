#include "brigade/collectives/bootstrap/internal/store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"

namespace brigade::collectives::internal {
namespace {

// An answer is small and fits into the socket's memory; a client that cannot take it is stuck.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(int port, int size) {
  absl::StatusOr<Socket> listener = Socket::Listen(port);
  if (!listener.ok()) return listener.status();
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return absl::UnavailableError(std::strerror(errno));
  return std::unique_ptr<StoreServer>(
      new StoreServer(*std::move(listener), pipe_fds[0], pipe_fds[1], size));
}

StoreServer::StoreServer(Socket listener, int stop_read, int stop_write, int size)
    : listener_(std::move(listener)),
      port_(listener_.local_port()),
      size_(size),
      stop_read_(stop_read),
      stop_write_(stop_write),
      thread_([this] { Run(); }) {}

void StoreServer::Stop(const absl::Status& reason, absl::Duration linger) {
  if (!thread_.joinable()) return;
  {
    device::MutexLock lock(stop_mutex_);
    stop_reason_ = reason;
    stop_time_ = absl::Now() + linger;
  }
  stop_write_.Close();
  thread_.join();
}

void StoreServer::GiveUp(const absl::Status& reason) {
  {
    device::MutexLock lock(stop_mutex_);
    gives_up_ = true;
  }
  Stop(reason, kLinger);
}

bool StoreServer::StopsNow() {
  device::MutexLock lock(stop_mutex_);
  if (stop_reason_.ok()) return false;
  if (gives_up_ && failure_.ok()) FailAll(stop_reason_);
  const bool all_know = clients_.empty() && (failure_.ok() || gives_up_ || hellos_ >= size_);
  if (!all_know && absl::Now() < stop_time_) return false;
  FailAll(stop_reason_);
  return true;
}

int StoreServer::PollTimeoutMs() {
  absl::Time next = absl::Now() + absl::Minutes(1);
  for (const Client& client : clients_) next = std::min(next, client.deadline);
  {
    device::MutexLock lock(stop_mutex_);
    next = std::min(next, stop_time_);
  }
  const absl::Duration left = std::max(next - absl::Now(), absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

void StoreServer::Run() {
  std::vector<pollfd> fds;
  while (!StopsNow()) {
    fds.assign({{stop_read_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}});
    for (const Client& client : clients_) fds.push_back({client.socket.fd(), POLLIN, 0});
    if (poll(fds.data(), fds.size(), PollTimeoutMs()) < 0) continue;  // a signal
    size_t at = 2;
    for (Client& client : clients_) {
      if (fds[at++].revents != 0) Hear(client);
    }
    ExpireGets();
    clients_.remove_if([](const Client& client) { return client.socket.fd() < 0; });
    if (fds[1].revents != 0) AcceptClient();
    if (fds[0].revents != 0) stop_read_.Close();  // heard; poll ignores it from now on
  }
}

void StoreServer::AcceptClient() {
  absl::StatusOr<Socket> socket = listener_.Accept();
  if (!socket.ok()) return;
  Client& client = clients_.emplace_back();
  client.socket = *std::move(socket);
}

void StoreServer::Hear(Client& client) {
  const absl::Status received = client.socket.Receive(client.received);
  std::string frame;
  while (client.socket.fd() >= 0) {
    const absl::StatusOr<bool> taken = Socket::TakeFrame(client.received, frame);
    if (taken.ok() && !*taken) break;
    const auto request =
        taken.ok() ? UnpackFields(frame) : absl::StatusOr<std::vector<std::string>>(taken.status());
    if (request.ok()) {
      Handle(client, *request);
    } else {
      client.socket.Close();  // another protocol
    }
  }
  if (received.ok() && client.socket.fd() >= 0) return;
  client.socket.Close();
  client.deadline = absl::InfiniteFuture();
  if (client.rank >= 0) addresses_.erase(client.rank);
}

void StoreServer::Handle(Client& client, const std::vector<std::string>& request) {
  if (client.done) return;
  int64_t timeout_ms = 0;
  if (request[0] == "hello" && request.size() == 4 && request[1] == kStoreProtocol) {
    Hello(client, request);
  } else if (client.rank < 0) {
    client.socket.Close();  // another protocol
  } else if (request[0] == "set" && request.size() == 3) {
    Set(client, request[1], request[2]);
  } else if (request[0] == "get" && request.size() == 3 &&
             absl::SimpleAtoi(request[2], &timeout_ms)) {
    const auto found = values_.find(request[1]);
    if (found != values_.end()) {
      Answer(client, absl::OkStatus(), found->second);
    } else {
      client.awaiting = request[1];
      client.deadline = absl::Now() + absl::Milliseconds(timeout_ms);
    }
  } else {
    Answer(client, absl::InvalidArgumentError("unknown request"));
  }
}

void StoreServer::Hello(Client& client, const std::vector<std::string>& request) {
  int rank = -1, size = 0;
  if (!absl::SimpleAtoi(request[2], &rank) || !absl::SimpleAtoi(request[3], &size)) {
    client.socket.Close();
    return;
  }
  ++hellos_;
  const std::string address = client.socket.peer_address();
  absl::Status refused = failure_;
  if (refused.ok() && size != size_) {
    refused = absl::FailedPreconditionError(
        absl::StrCat("world sizes differ: rank ", rank, " (", address, ") was started with ", size,
                     " ranks, the store's server with ", size_));
  } else if (refused.ok() && (rank < 0 || rank >= size_)) {
    refused = absl::InvalidArgumentError(absl::StrCat("no rank ", rank, " of ", size_));
  } else if (refused.ok() && addresses_.count(rank) > 0) {
    refused = absl::AlreadyExistsError(
        absl::StrCat("two processes have rank ", rank, ": ", addresses_[rank], " and ", address));
  }
  if (!refused.ok()) {
    AnswerLast(client, refused);
    // A whole group does not suffer from one who comes too late.
    if (failure_.ok() && !complete_) FailAll(refused);
    return;
  }
  client.rank = rank;
  addresses_[rank] = address;
  complete_ = complete_ || addresses_.size() == static_cast<size_t>(size_);
  Answer(client, absl::OkStatus());
}

void StoreServer::Set(Client& client, const std::string& key, const std::string& value) {
  const auto [at, inserted] = values_.emplace(key, value);
  if (!inserted && at->second != value) {
    Answer(client, absl::AlreadyExistsError(absl::StrCat("key '", key, "' has another value")));
    return;
  }
  Answer(client, absl::OkStatus());
  for (Client& other : clients_) {
    if (other.awaiting == key) Answer(other, absl::OkStatus(), value);
  }
}

void StoreServer::ExpireGets() {
  for (Client& client : clients_) {
    if (client.deadline > absl::Now()) continue;
    Answer(client,
           absl::DeadlineExceededError(absl::StrCat("nobody has set key '", client.awaiting, "'")));
  }
}

void StoreServer::FailAll(const absl::Status& reason) {
  failure_ = reason;
  for (Client& client : clients_) {
    if (!client.done && client.rank >= 0) AnswerLast(client, reason);
  }
}

void StoreServer::Answer(Client& client, const absl::Status& status, const std::string& value) {
  Send(client, {absl::StrCat(static_cast<int>(status.code())),
                status.ok() ? value : std::string(status.message())});
}

void StoreServer::AnswerLast(Client& client, const absl::Status& status) {
  Send(client,
       {absl::StrCat(static_cast<int>(status.code())), std::string(status.message()), "last"});
  client.done = true;
}

void StoreServer::Send(Client& client, const std::vector<std::string>& answer) {
  client.awaiting.clear();
  client.deadline = absl::InfiniteFuture();
  if (client.socket.fd() < 0) return;
  // A failure shows when the client is heard next.
  client.socket.SendFrame(PackFields(answer), absl::Now() + kAnswerTimeout).IgnoreError();
}

}  // namespace brigade::collectives::internal
