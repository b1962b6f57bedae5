#include "brigade/collectives/bootstrap/internal/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace brigade::collectives::internal {
namespace {

// Far more than any value; a larger length means that the other side speaks something else.
constexpr uint32_t kMostBytes = 16 << 20;
constexpr size_t kHeaderBytes = sizeof(uint32_t);

std::string Reason() { return std::strerror(errno); }

void Prepare(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

struct Name {
  std::string host;
  int port = 0;
};

Name NameOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    return {text, ntohs(in.sin_port)};
  }
  const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
    inet_ntop(AF_INET, in.sin6_addr.s6_addr + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof(text));
  }
  return {text, ntohs(in.sin6_port)};
}

absl::StatusOr<Socket> ListenOn(int family, int port) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) return absl::UnavailableError(Reason());
  const int on = 1, off = 0;
  // A port that an earlier run left in TIME_WAIT is free; one with a listener is not.
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    auto& in = reinterpret_cast<sockaddr_in6&>(address);
    in.sin6_family = AF_INET6;
    in.sin6_addr = in6addr_any;
    in.sin6_port = htons(port);
    bytes = sizeof(in);
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(address);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = INADDR_ANY;
    in.sin_port = htons(port);
  }
  if (bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      listen(socket.fd(), SOMAXCONN) != 0) {
    return errno == EADDRINUSE ? absl::AlreadyExistsError(Reason())
                               : absl::UnavailableError(Reason());
  }
  return socket;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    received_ = std::move(other.received_);
  }
  return *this;
}

void Socket::Close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

absl::StatusOr<Socket> Socket::Listen(int port) {
  absl::StatusOr<Socket> socket = ListenOn(AF_INET6, port);
  if (socket.ok() || absl::IsAlreadyExists(socket.status())) return socket;
  return ListenOn(AF_INET, port);  // a host without IPv6
}

absl::StatusOr<Socket> Socket::Connect(const std::string& host, int port, absl::Time deadline) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error == EAI_AGAIN) return absl::UnavailableError(gai_strerror(error));
  if (error != 0) return absl::InvalidArgumentError(gai_strerror(error));

  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.fd() < 0) {
      last = absl::UnavailableError(Reason());
      continue;
    }
    if (connect(socket.fd(), at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
      last = absl::UnavailableError(Reason());
      continue;
    }
    if (!socket.WaitFor(POLLOUT, deadline).ok()) {
      last = absl::UnavailableError("no answer");
      continue;
    }
    int failure = 0;
    socklen_t bytes = sizeof(failure);
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &failure, &bytes);
    if (failure != 0) {
      last = absl::UnavailableError(std::strerror(failure));
      continue;
    }
    // A port of this host without a listener may be the one that the kernel gave to us.
    if (socket.peer_address() == HostPort(socket.local_host(), socket.local_port())) {
      last = absl::UnavailableError("connected to itself");
      continue;
    }
    Prepare(socket.fd());
    freeaddrinfo(found);
    return socket;
  }
  freeaddrinfo(found);
  return last;
}

absl::StatusOr<Socket> Socket::Accept() {
  Socket socket(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.fd() < 0) return absl::UnavailableError(Reason());
  Prepare(socket.fd());
  return socket;
}

absl::Status Socket::WaitFor(short events, absl::Time deadline) const {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    const absl::Duration slice = std::min(left, absl::Minutes(1));
    pollfd poll_fd = {fd_, events, 0};
    const int ready = poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(slice)) + 1);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::UnavailableError(Reason());
  }
}

absl::Status Socket::SendFrame(absl::string_view payload, absl::Time deadline) {
  const uint32_t length = htonl(static_cast<uint32_t>(payload.size()));
  std::string frame(reinterpret_cast<const char*>(&length), kHeaderBytes);
  frame.append(payload.data(), payload.size());
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t bytes = send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (bytes >= 0) {
      sent += bytes;
    } else if (errno == EAGAIN) {
      const absl::Status ready = WaitFor(POLLOUT, deadline);
      if (!ready.ok()) return ready;
    } else if (errno != EINTR) {
      return absl::UnavailableError(Reason());
    }
  }
  return absl::OkStatus();
}

absl::Status Socket::Receive(std::string& data) {
  char chunk[4096];
  while (true) {
    const ssize_t bytes = recv(fd_, chunk, sizeof(chunk), 0);
    if (bytes > 0) {
      data.append(chunk, bytes);
    } else if (bytes == 0) {
      return absl::UnavailableError("the connection was closed");
    } else if (errno == EAGAIN) {
      return absl::OkStatus();
    } else if (errno != EINTR) {
      return absl::UnavailableError(Reason());
    }
  }
}

absl::StatusOr<bool> Socket::TakeFrame(std::string& data, std::string& payload) {
  if (data.size() < kHeaderBytes) return false;
  uint32_t length = 0;
  std::memcpy(&length, data.data(), kHeaderBytes);
  length = ntohl(length);
  if (length > kMostBytes) return absl::InvalidArgumentError("not a frame of this protocol");
  if (data.size() < kHeaderBytes + length) return false;
  payload = data.substr(kHeaderBytes, length);
  data.erase(0, kHeaderBytes + length);
  return true;
}

absl::StatusOr<std::string> Socket::ReceiveFrame(absl::Time deadline) {
  std::string payload;
  while (true) {
    // A last frame and the end of the connection may come together: look at the frame first.
    const absl::Status received = Receive(received_);
    const absl::StatusOr<bool> taken = TakeFrame(received_, payload);
    if (!taken.ok()) return taken.status();
    if (*taken) return payload;
    if (!received.ok()) return received;
    const absl::Status ready = WaitFor(POLLIN, deadline);
    if (!ready.ok()) return ready;
  }
}

int Socket::local_port() const {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
  return NameOf(address).port;
}

std::string Socket::local_host() const {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
  return NameOf(address).host;
}

std::string Socket::peer_address() const {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
  const Name name = NameOf(address);
  return HostPort(name.host, name.port);
}

std::string HostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

}  // namespace brigade::collectives::internal
