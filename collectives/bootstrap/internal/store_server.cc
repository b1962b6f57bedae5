#include "brigade/collectives/bootstrap/internal/store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"

namespace brigade::collectives::internal {
namespace {

using ::brigade::device::Printable;

// An answer is small and fits into the socket's memory; a client that cannot take it is stuck.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(1);
// Until descriptors are looked for again.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
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
      options_(options),
      token_(Nonce()),
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

absl::Status StoreServer::GiveUp(const absl::Status& reason) {
  {
    device::MutexLock lock(stop_mutex_);
    gives_up_ = true;
  }
  Stop(reason, kLinger);
  return failure_;
}

bool StoreServer::StopsNow() {
  device::MutexLock lock(stop_mutex_);
  if (stop_reason_.ok()) return false;
  if (gives_up_ && failure_.ok()) {
    FailAll(refusal_.empty()
                ? stop_reason_
                : absl::Status(stop_reason_.code(),
                               Printable(absl::StrCat(stop_reason_.message(),
                                                      "; one was refused: ", refusal_))));
  }
  const bool all_know =
      clients_.empty() && (failure_.ok() || gives_up_ || hellos_ >= options_.size);
  if (!all_know && absl::Now() < stop_time_) return false;
  if (failure_.ok()) FailAll(stop_reason_);
  return true;
}

// Whether who comes now belongs to the next group. Of one that could not form all are to hear.
bool StoreServer::IsClosed() {
  device::MutexLock lock(stop_mutex_);
  return !stop_reason_.ok() && failure_.ok();
}

int StoreServer::PollTimeoutMs() {
  absl::Time next = absl::Now() + absl::Minutes(1);
  for (const Client& client : clients_) next = std::min(next, client.deadline);
  if (accepts_again_ > absl::Now()) next = std::min(next, accepts_again_);
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
    // Those who wait where no descriptor is left are looked at later.
    const bool accepts = absl::Now() >= accepts_again_ && !IsClosed();
    fds.assign({{stop_read_.fd(), POLLIN, 0},
                {listener_.fd(), static_cast<short>(accepts ? POLLIN : 0), 0}});
    for (const Client& client : clients_) fds.push_back({client.socket.fd(), POLLIN, 0});
    if (poll(fds.data(), fds.size(), PollTimeoutMs()) < 0) continue;  // a signal
    size_t at = 2;
    for (Client& client : clients_) {
      if (fds[at++].revents != 0) Hear(client);
    }
    Expire();
    clients_.remove_if([](const Client& client) { return client.socket.fd() < 0; });
    if (fds[1].revents != 0) AcceptClients();
    if (fds[0].revents != 0) stop_read_.Close();  // heard; poll ignores it from now on
  }
  if (strangers_ > 1) {
    absl::FPrintF(stderr, "brigade: port %d refused %d connections of strangers\n", port_,
                  strangers_);
  }
}

void StoreServer::AcceptClients() {
  absl::StatusOr<Socket> socket = listener_.Accept();
  int unproved = 0;
  Client* oldest = nullptr;
  for (Client& client : clients_) {
    if (client.handshake.is_proved() || client.socket.fd() < 0) continue;
    if (unproved++ == 0) oldest = &client;
  }
  const bool is_full = absl::IsResourceExhausted(socket.status());
  if (oldest != nullptr && (is_full || (socket.ok() && unproved >= kMostUnproved))) {
    CloseStranger(*oldest,
                  is_full ? std::string(socket.status().message()) : "too many connect at once");
  } else if (is_full) {
    if (!is_short_) {
      absl::FPrintF(stderr, "brigade: port %d accepts nobody for now: %s\n", port_,
                    socket.status().message());
    }
    is_short_ = true;
    accepts_again_ = absl::Now() + kAcceptPause;
  }
  if (!socket.ok()) return;
  is_short_ = false;
  clients_.emplace_back(*std::move(socket), options_.secret, options_.rank);
}

void StoreServer::Hear(Client& client) {
  const absl::Status received = client.socket.Receive(
      client.received, client.handshake.is_proved() ? kBytesAtOnce : kMostUnprovedBytes);
  std::string frame;
  while (client.socket.fd() >= 0) {
    const uint32_t most = client.handshake.is_proved() ? kMostFrameBytes : kMostUnprovedBytes;
    const absl::StatusOr<bool> taken = client.received.Take(most, frame);
    if (!taken.ok()) {
      CloseStranger(client, std::string(taken.status().message()));
    } else if (!*taken) {
      break;
    } else {
      HearFrame(client, frame);
    }
  }
  if (client.socket.fd() < 0) return;
  if (!received.ok()) {
    client.handshake.is_proved() ? Close(client) : CloseStranger(client, "it has gone");
  } else if (client.received.size() > 0 && HalfSentBytes() > MostBytes()) {
    CloseStranger(client, "too much is half sent");
  }
}

size_t StoreServer::MostBytes() const {
  const auto size = static_cast<size_t>(options_.size);
  return std::min(kMostStoreBytes + size * size * kMostStoreBytesPerPair,
                  static_cast<size_t>(device::MostFileBytes()));
}

size_t StoreServer::HalfSentBytes() const {
  size_t bytes = 0;
  for (const Client& client : clients_) bytes += client.received.size();
  return bytes;
}

void StoreServer::HearFrame(Client& client, const std::string& frame) {
  if (client.handshake.is_proved()) {
    const auto request = UnpackFields(frame);
    return request.ok() ? Handle(client, *request)
                        : CloseStranger(client, std::string(request.status().message()));
  }
  const absl::StatusOr<std::string> answer = client.handshake.Hear(frame);
  if (!answer.ok()) return CloseStranger(client, std::string(answer.status().message()));
  if (!answer->empty()) {
    // It fits into the memory of a new connection.
    if (!client.socket.SendFrame(*answer, absl::Now()).ok()) CloseStranger(client, "it has gone");
  }
}

void StoreServer::Handle(Client& client, const std::vector<std::string>& request) {
  if (client.done) return;
  int64_t timeout_ms = 0;
  if (client.rank < 0) {
    Hello(client, request);
  } else if (request[0] == "set" && request.size() == 3) {
    Set(client, request[1], request[2]);
  } else if (request[0] == "get" && request.size() == 3 &&
             absl::SimpleAtoi(request[2], &timeout_ms) && timeout_ms >= 0) {
    const auto found = values_.find(request[1]);
    if (found != values_.end()) {
      Answer(client, absl::OkStatus(), found->second);
    } else {
      client.awaiting = request[1];
      client.deadline = absl::Now() + absl::Milliseconds(timeout_ms);
    }
  } else if (request[0] == "remove" && request.size() == 2) {
    const auto found = values_.find(request[1]);
    if (found != values_.end()) {
      values_bytes_ -= found->first.size() + found->second.size();
      values_.erase(found);
    }
    Answer(client, absl::OkStatus());
  } else {
    Answer(client, absl::InvalidArgumentError("unknown request"));
  }
}

void StoreServer::Hello(Client& client, const std::vector<std::string>& request) {
  int rank = -1, size = 0;
  const bool is_hello = request.size() == 6 && request[0] == "hello" &&
                        absl::SimpleAtoi(request[1], &rank) && absl::SimpleAtoi(request[2], &size);
  const absl::StatusOr<JobValues> values = UnpackValues(is_hello ? request[5] : "");
  if (!values.ok()) return CloseStranger(client, "it speaks another protocol");
  ++hellos_;
  client.deadline = absl::InfiniteFuture();
  const std::string& address = client.address;
  const bool one_job = AreOfOneJob(options_.job, request[4]);
  const std::string job = Printable(request[4]);
  const std::string differences = Printable(Differences(*values, options_.job.values));
  const bool is_ours = request[3] == token_;
  if (!failure_.ok()) return AnswerLast(client, failure_, kLast);
  if (!is_ours && !options_.job.name.empty() && !job.empty() && !one_job) {
    return Refuse(client,
                  absl::AlreadyExistsError(absl::StrCat("the port is of job ", options_.job.name,
                                                        ", not of ", job, ", to which rank ", rank,
                                                        " (", address, ") belongs")),
                  /*concerns_all=*/false);
  }
  if (size != options_.size) {
    return Refuse(client,
                  absl::FailedPreconditionError(absl::StrCat(
                      "world sizes differ: rank ", rank, " (", address, ") was started with ", size,
                      " ranks, the store's server with ", options_.size)),
                  one_job);
  }
  if (rank < 0 || rank >= size) {
    return Refuse(client, absl::InvalidArgumentError(absl::StrCat("no rank ", rank, " of ", size)),
                  one_job);
  }
  if (!differences.empty()) {
    return Refuse(client,
                  absl::FailedPreconditionError(absl::StrCat(
                      "rank ", rank, " (", address, ") was started otherwise than rank ",
                      options_.rank, ", or in another job: ", differences)),
                  one_job);
  }
  const auto other = addresses_.find(rank);
  if (other != addresses_.end() || (rank == options_.rank && !is_ours)) {
    const std::string owner = other != addresses_.end() ? other->second : "the store's server";
    return Refuse(client,
                  absl::AlreadyExistsError(absl::StrCat("two processes have rank ", rank, ": ",
                                                        owner, " and ", address)),
                  one_job);
  }
  if (whole_) {
    return Refuse(client, absl::UnavailableError("it is of a group that is complete"), false);
  }
  client.rank = rank;
  addresses_[rank] = address;
  whole_ = addresses_.size() == static_cast<size_t>(options_.size);
  Answer(client, absl::OkStatus());
}

void StoreServer::Refuse(Client& client, const absl::Status& why, bool concerns_all) {
  // A whole group does not suffer from one who comes too late.
  if (whole_) return AnswerLast(client, why, kWhole);
  AnswerLast(client, why, kLast);
  if (concerns_all) {
    FailAll(why);
  } else {
    refusal_ = std::string(why.message());
  }
}

void StoreServer::Set(Client& client, const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  if (found != values_.end() && found->second != value) {
    Answer(client, absl::AlreadyExistsError(absl::StrCat("key '", key, "' has another value")));
    return;
  }
  if (found == values_.end()) {
    const size_t bytes = key.size() + value.size();
    if (bytes > MostBytes() - values_bytes_) {
      Answer(client, absl::ResourceExhaustedError(absl::StrCat("no room for ", bytes,
                                                               " bytes beside ", values_bytes_,
                                                               ", of at most ", MostBytes())));
      return;
    }
    values_bytes_ += bytes;
    values_.emplace(key, value);
  }
  Answer(client, absl::OkStatus());
  for (Client& other : clients_) {
    if (other.awaiting == key) Answer(other, absl::OkStatus(), value);
  }
}

void StoreServer::Close(Client& client) {
  client.received = FrameBuffer();
  client.socket.Close();
  client.deadline = absl::InfiniteFuture();
  client.awaiting.reset();
  if (client.rank >= 0) addresses_.erase(client.rank);
}

void StoreServer::CloseStranger(Client& client, const std::string& why) {
  if (strangers_++ == 0) {
    absl::FPrintF(stderr, "brigade: port %d refused %s: %s; others are counted\n", port_,
                  client.address, why);
  }
  Close(client);
}

void StoreServer::Expire() {
  for (Client& client : clients_) {
    if (client.deadline > absl::Now() || client.socket.fd() < 0) continue;
    if (client.rank < 0) {
      CloseStranger(client, absl::StrCat("it said nothing that counts for ",
                                         absl::FormatDuration(kHandshakeTimeout)));
    } else {
      Answer(client, absl::DeadlineExceededError(
                         absl::StrCat("nobody has set key '", client.awaiting.value_or(""), "'")));
    }
  }
}

void StoreServer::FailAll(const absl::Status& reason) {
  failure_ = reason;
  for (Client& client : clients_) {
    if (!client.done && client.rank >= 0) AnswerLast(client, reason, kLast);
  }
}

void StoreServer::Answer(Client& client, const absl::Status& status, const std::string& value) {
  Send(client, PackFields({absl::StrCat(static_cast<int>(status.code())),
                           status.ok() ? value : std::string(status.message())}));
}

void StoreServer::AnswerLast(Client& client, const absl::Status& status, absl::string_view how) {
  Send(client, PackFields({absl::StrCat(static_cast<int>(status.code())),
                           std::string(status.message()), std::string(how)}));
  client.done = true;
}

void StoreServer::Send(Client& client, const std::string& frame) {
  client.awaiting.reset();
  client.deadline = absl::InfiniteFuture();
  if (client.socket.fd() < 0) return;
  // What follows half a message would not be understood.
  if (!client.socket.SendFrame(frame, absl::Now() + kAnswerTimeout).ok()) Close(client);
}

}  // namespace brigade::collectives::internal
