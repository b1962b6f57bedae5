#include "brigade/collectives/engines/gloo/peer_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/gloo/peer_acceptor.h"
#include "brigade/collectives/internal/frame_buffer.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {
namespace {

using ::brigade::device::SteadyTime;

// Until one whose connection was closed connects again.
constexpr absl::Duration kRetryInterval = absl::Milliseconds(50);
// What a rank says to all others when it is connected with all.
constexpr char kConnected = 2;
// How much longer a rank that is connected waits for those that are not, who know why.
constexpr absl::Duration kExplanationTimeout = absl::Milliseconds(500);

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// InvalidArgument for what AddressOf does not make.
absl::StatusOr<SocketAddress> Parse(const std::string& bytes) {
  SocketAddress address;
  if (bytes.size() <= sizeof(address.storage)) {
    std::memcpy(&address.storage, bytes.data(), bytes.size());
    address.bytes = static_cast<socklen_t>(bytes.size());
    const int family = address.storage.ss_family;
    if (family == AF_INET && bytes.size() == sizeof(sockaddr_in)) return address;
    if (family == AF_INET6 && bytes.size() == sizeof(sockaddr_in6)) return address;
  }
  return absl::InvalidArgumentError("it has published no address");
}

std::string NameOf(const SocketAddress& address) {
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "0";
  getnameinfo(address.get(), address.bytes, host, sizeof(host), port, sizeof(port),
              NI_NUMERICHOST | NI_NUMERICSERV);
  int number = 0;
  return HostPort(host, absl::SimpleAtoi(port, &number) ? number : 0);
}

class PeerConnector {
 public:
  PeerConnector(const GlooOptions& options, const JobSecret& secret, Socket listener,
                const std::vector<std::string>& addresses, SteadyTime deadline)
      : options_(options),
        secret_(secret),
        deadline_(deadline),
        sockets_(static_cast<size_t>(options.size)),
        acceptor_(secret, options.rank, std::move(listener), sockets_),
        missing_(options.rank) {
    for (int rank = 0; rank < options.rank; ++rank) {
      servers_.push_back({.rank = rank, .address = addresses[static_cast<size_t>(rank)]});
    }
  }

  // Connects with all; what is connected stays open until the destruction.
  absl::Status Run();
  // Waits for the words of all others.
  absl::Status Confirm();
  std::vector<Socket> Release() { return std::move(sockets_); }

 private:
  // A lower rank, to which this one connects.
  struct Server {
    enum Step { kApart, kConnecting, kProving, kAwaitingTaken, kDone };

    int rank = 0;
    std::string address = {};
    // For errors.
    std::string name = {};
    Step step = kApart;
    SteadyTime connects_at = SteadyTime::InfinitePast();
    Socket socket = {};
    std::optional<ClientHandshake> handshake = {};
    FrameBuffer received = {};
    // Why the last connection was closed.
    std::string trouble = {};
  };

  int PollTimeoutMs() const;

  void Connect(Server& server);
  void Hear(Server& server);
  void Prove(Server& server);
  void AwaitTaken(Server& server);
  void Retry(Server& server, absl::string_view why);
  void Lose(Server& server, absl::string_view why);

  // `late` did not do what `failing` says.
  absl::Status Late(absl::string_view failing, const std::vector<int>& late) const;
  absl::Status Gone() const;

  const GlooOptions& options_;
  const JobSecret& secret_;
  const SteadyTime deadline_;

  // Connections that are proved, by rank.
  std::vector<Socket> sockets_;
  PeerAcceptor acceptor_;
  std::vector<Server> servers_;
  // Servers that have not taken this rank yet.
  int missing_;
  std::vector<int> lost_;
  std::string why_lost_;
};

absl::Status PeerConnector::Run() {
  std::vector<pollfd> fds;
  while (missing_ > 0 || !acceptor_.is_complete()) {
    for (Server& server : servers_) {
      if (server.step == Server::kApart && server.connects_at <= SteadyTime::Now()) Connect(server);
    }
    if (!lost_.empty()) return Gone();
    if (SteadyTime::Now() >= deadline_) {
      std::vector<int> late;
      for (int rank = 0; rank < options_.size; ++rank) {
        if (rank != options_.rank && sockets_[static_cast<size_t>(rank)].fd() < 0) {
          late.push_back(rank);
        }
      }
      return Late("connect", late);
    }
    fds.clear();
    for (const Server& server : servers_) {
      const bool connects = server.step == Server::kConnecting;
      fds.push_back({server.socket.fd(), static_cast<short>(connects ? POLLOUT : POLLIN), 0});
    }
    acceptor_.Watch(fds);
    if (poll(fds.data(), fds.size(), PollTimeoutMs()) < 0) continue;  // a signal
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (fds[i].revents != 0) Hear(servers_[i]);
    }
    acceptor_.Hear(absl::MakeConstSpan(fds).subspan(servers_.size()));
  }
  return absl::OkStatus();
}

absl::Status PeerConnector::Confirm() {
  std::vector<pollfd> fds;
  for (const Socket& socket : sockets_) {
    fds.push_back({socket.fd(), POLLIN, 0});
    // It fits into the memory of a new connection; who is gone is seen below.
    if (socket.fd() >= 0) send(socket.fd(), &kConnected, 1, MSG_NOSIGNAL);
  }
  const SteadyTime until = deadline_ + kExplanationTimeout;
  for (size_t missing = fds.size() - 1; missing > 0;) {
    if (SteadyTime::Now() >= until) {
      std::vector<int> late;
      for (size_t rank = 0; rank < fds.size(); ++rank) {
        if (fds[rank].fd >= 0) late.push_back(static_cast<int>(rank));
      }
      return Late("connect with all others", late);
    }
    const absl::Duration left = std::min(until - SteadyTime::Now(), absl::Minutes(1));
    if (poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) < 0) {
      continue;  // a signal
    }
    for (size_t rank = 0; rank < fds.size(); ++rank) {
      if (fds[rank].revents == 0) continue;
      // What is behind this byte is Gloo's.
      char byte = 0;
      const ssize_t bytes = recv(fds[rank].fd, &byte, 1, 0);
      if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (bytes == 1 && byte == kConnected) {
        fds[rank].fd = -1;
        --missing;
        continue;
      }
      if (lost_.empty()) {
        why_lost_ = bytes < 0 ? std::strerror(errno) : "the connection was closed";
      }
      lost_.push_back(static_cast<int>(rank));
    }
    if (!lost_.empty()) return Gone();
  }
  return absl::OkStatus();
}

int PeerConnector::PollTimeoutMs() const {
  SteadyTime next =
      std::min({deadline_, acceptor_.wakes_at(), SteadyTime::Now() + absl::Minutes(1)});
  for (const Server& server : servers_) {
    if (server.step == Server::kApart) next = std::min(next, server.connects_at);
  }
  const absl::Duration left = std::max(next - SteadyTime::Now(), absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

void PeerConnector::Connect(Server& server) {
  const absl::StatusOr<SocketAddress> address = Parse(server.address);
  if (!address.ok()) return Lose(server, address.status().message());
  server.name = NameOf(*address);
  server.socket =
      Socket(socket(address->get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (server.socket.fd() < 0) {
    const std::string why = absl::StrCat("socket: ", std::strerror(errno));
    acceptor_.MakeRoom(why);
    return Retry(server, why);
  }
  if (connect(server.socket.fd(), address->get(), address->bytes) != 0 && errno != EINPROGRESS) {
    return Lose(server, absl::StrCat("connect ", server.name, ": ", std::strerror(errno)));
  }
  server.handshake.emplace(secret_, server.rank);
  server.received = FrameBuffer();
  server.step = Server::kConnecting;
}

void PeerConnector::Hear(Server& server) {
  switch (server.step) {
    case Server::kConnecting: {
      int error = 0;
      socklen_t bytes = sizeof(error);
      getsockopt(server.socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
      // One that makes room may be closed before it has said anything.
      if (error == ECONNRESET) return Retry(server, std::strerror(error));
      if (error != 0) {
        return Lose(server, absl::StrCat("connect ", server.name, ": ", std::strerror(error)));
      }
      // What is sent here fits into the memory of a new connection.
      const absl::Status sent =
          server.socket.SendFrame(server.handshake->Knock(), SteadyTime::Now());
      if (!sent.ok()) return Retry(server, sent.message());
      server.step = Server::kProving;
      return;
    }
    case Server::kProving:
      return Prove(server);
    case Server::kAwaitingTaken:
      return AwaitTaken(server);
    case Server::kApart:
    case Server::kDone:
      return;
  }
}

void PeerConnector::Prove(Server& server) {
  // The server says one frame until it has heard the answer.
  const absl::Status received = server.socket.Receive(server.received, 1);
  std::string frame;
  const absl::StatusOr<bool> taken = server.received.Take(kMostUnprovedBytes, frame);
  if (taken.ok() && !*taken) {
    if (!received.ok()) Retry(server, received.message());
    return;
  }
  const absl::StatusOr<std::string> proof =
      taken.ok() ? server.handshake->Hear(frame) : taken.status();
  if (!proof.ok()) {
    return Lose(server, absl::StrCat("who answers at ", server.name,
                                     " is not that rank: ", proof.status().message()));
  }
  absl::Status sent = server.socket.SendFrame(*proof, SteadyTime::Now());
  if (sent.ok()) sent = server.socket.SendFrame(absl::StrCat(options_.rank), SteadyTime::Now());
  if (!sent.ok()) return Retry(server, sent.message());
  server.step = Server::kAwaitingTaken;
}

void PeerConnector::AwaitTaken(Server& server) {
  // What is behind this byte is Gloo's.
  char byte = 0;
  const ssize_t bytes = recv(server.socket.fd(), &byte, 1, 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (bytes != 1 || byte != kTaken) return Retry(server, "the connection was closed");
  server.step = Server::kDone;
  sockets_[static_cast<size_t>(server.rank)] = std::move(server.socket);
  --missing_;
}

void PeerConnector::Retry(Server& server, absl::string_view why) {
  server.trouble = std::string(why);
  server.socket.Close();
  server.step = Server::kApart;
  server.connects_at = SteadyTime::Now() + kRetryInterval;
}

void PeerConnector::Lose(Server& server, absl::string_view why) {
  Retry(server, why);
  if (lost_.empty()) why_lost_ = std::string(why);
  lost_.push_back(server.rank);
}

absl::Status PeerConnector::Late(absl::string_view failing, const std::vector<int>& late) const {
  std::string message =
      absl::StrCat(RankNames(late), " joined '", options_.prefix, "' but did not ", failing,
                   " within ", absl::FormatDuration(options_.connect_timeout));
  for (const Server& server : servers_) {
    if (server.step == Server::kDone || server.trouble.empty()) continue;
    absl::StrAppend(&message, "; rank ", server.rank, ": ", server.trouble);
    break;
  }
  return absl::DeadlineExceededError(message);
}

absl::Status PeerConnector::Gone() const {
  return absl::UnavailableError(
      absl::StrCat(RankNames(lost_), lost_.size() == 1 ? " is" : " are", " gone: ", why_lost_));
}

}  // namespace

absl::StatusOr<Socket> ListenForPeers(const ::gloo::transport::tcp::attr& device) {
  Socket socket(::socket(device.ai_addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto* const address = reinterpret_cast<const sockaddr*>(&device.ai_addr);
  if (socket.fd() < 0 ||
      bind(socket.fd(), address, static_cast<socklen_t>(device.ai_addrlen)) != 0 ||
      listen(socket.fd(), SOMAXCONN) != 0) {
    return absl::UnavailableError(std::strerror(errno));
  }
  return socket;
}

std::string AddressOf(const Socket& listener) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes);
  return std::string(reinterpret_cast<const char*>(&address.storage), address.bytes);
}

absl::StatusOr<PeerConnections> ConnectPeers(
    const GlooOptions& options, const JobSecret& secret, Socket listener,
    const std::vector<std::string>& addresses, SteadyTime deadline,
    const std::function<absl::Status(const absl::Status& own)>& explain) {
  PeerConnector connector(options, secret, std::move(listener), addresses, deadline);
  const absl::Status connected = connector.Run();
  if (!connected.ok()) return explain(connected);
  const absl::Status confirmed = connector.Confirm();
  return PeerConnections{connector.Release(), confirmed.ok() ? confirmed : explain(confirmed)};
}

}  // namespace brigade::collectives::internal
