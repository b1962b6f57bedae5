#include "brigade/collectives/internal/socket.h"

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

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {
namespace {

using ::brigade::device::SteadyTime;

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

// NotFound if the address is not this host's.
absl::StatusOr<Socket> ListenOn(const sockaddr* address, socklen_t bytes) {
  Socket socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) return absl::UnavailableError(Reason());
  const int on = 1, off = 0;
  // A port that an earlier run left in TIME_WAIT is free; one with a listener is not.
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) {
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(socket.fd(), address, bytes) != 0 || listen(socket.fd(), SOMAXCONN) != 0) {
    return errno == EADDRINUSE      ? absl::AlreadyExistsError(Reason())
           : errno == EADDRNOTAVAIL ? absl::NotFoundError(Reason())
                                    : absl::UnavailableError(Reason());
  }
  return socket;
}

absl::StatusOr<Socket> ListenOnAll(int port) {
  sockaddr_in6 any6 = {};
  any6.sin6_family = AF_INET6;
  any6.sin6_addr = in6addr_any;
  any6.sin6_port = htons(static_cast<uint16_t>(port));
  absl::StatusOr<Socket> socket = ListenOn(reinterpret_cast<const sockaddr*>(&any6), sizeof(any6));
  if (socket.ok() || absl::IsAlreadyExists(socket.status())) return socket;
  sockaddr_in any = {};  // a host without IPv6
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = INADDR_ANY;
  any.sin_port = htons(static_cast<uint16_t>(port));
  return ListenOn(reinterpret_cast<const sockaddr*>(&any), sizeof(any));
}

// Of a name, or an error as Connect has it.
absl::StatusOr<addrinfo*> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error == 0) return found;
  return error == EAI_AGAIN ? absl::UnavailableError(gai_strerror(error))
                            : absl::InvalidArgumentError(gai_strerror(error));
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

absl::StatusOr<Socket> Socket::Listen(const std::string& host, int port) {
  if (host.empty()) return ListenOnAll(port);
  const absl::StatusOr<addrinfo*> found = Resolve(host, port);
  if (!found.ok()) return found.status();
  absl::StatusOr<Socket> socket = absl::NotFoundError("no address");
  for (const addrinfo* at = *found; at != nullptr && absl::IsNotFound(socket.status());
       at = at->ai_next) {
    socket = ListenOn(at->ai_addr, at->ai_addrlen);
  }
  freeaddrinfo(*found);
  const bool is_elsewhere = absl::IsNotFound(socket.status());
  const bool is_hidden = socket.ok() && IsLoopback(socket->local_host()) && !IsLoopback(host);
  if (!is_elsewhere && !is_hidden) return socket;
  if (is_hidden) port = socket->local_port();
  socket = absl::NotFoundError("");  // closes it
  return ListenOnAll(port);
}

absl::StatusOr<Socket> Socket::Connect(const std::string& host, int port, SteadyTime deadline) {
  const absl::StatusOr<addrinfo*> found = Resolve(host, port);
  if (!found.ok()) return found.status();
  absl::Status last = absl::UnavailableError("no address");
  int left = 0;
  for (const addrinfo* at = *found; at != nullptr; at = at->ai_next) ++left;
  for (const addrinfo* at = *found; at != nullptr; at = at->ai_next) {
    const SteadyTime now = SteadyTime::Now();
    const SteadyTime until = now + (deadline - now) / left--;
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.fd() < 0) {
      last = absl::UnavailableError(Reason());
      continue;
    }
    if (connect(socket.fd(), at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
      last = absl::UnavailableError(Reason());
      continue;
    }
    if (!socket.WaitFor(POLLOUT, until).ok()) {
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
    freeaddrinfo(*found);
    return socket;
  }
  freeaddrinfo(*found);
  return last;
}

absl::StatusOr<Socket> Socket::Accept() {
  Socket socket(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.fd() < 0) {
    const bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
    return is_full ? absl::ResourceExhaustedError(Reason()) : absl::UnavailableError(Reason());
  }
  Prepare(socket.fd());
  return socket;
}

absl::Status Socket::WaitFor(short events, SteadyTime deadline) const {
  while (true) {
    const absl::Duration left = deadline - SteadyTime::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    const absl::Duration slice = std::min(left, absl::Minutes(1));
    pollfd poll_fd = {fd_, events, 0};
    const int ready = poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(slice)) + 1);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::UnavailableError(Reason());
  }
}

absl::Status Socket::Send(absl::string_view bytes, SteadyTime deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      const absl::Status ready = WaitFor(POLLOUT, deadline);
      if (!ready.ok()) return ready;
    } else if (errno != EINTR) {
      return absl::UnavailableError(Reason());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Socket::Receive(size_t bytes, SteadyTime deadline) {
  std::string received(bytes, '\0');
  for (size_t at = 0; at < bytes;) {
    const ssize_t more = recv(fd_, received.data() + at, bytes - at, 0);
    if (more > 0) {
      at += static_cast<size_t>(more);
    } else if (more == 0) {
      return absl::UnavailableError("the connection was closed");
    } else if (errno == EAGAIN) {
      const absl::Status ready = WaitFor(POLLIN, deadline);
      if (!ready.ok()) return ready;
    } else if (errno != EINTR) {
      return absl::UnavailableError(Reason());
    }
  }
  return received;
}

absl::Status Socket::SendFrame(absl::string_view payload, SteadyTime deadline) {
  if (payload.size() > kMostFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", payload.size(), " bytes, of at most ", kMostFrameBytes));
  }
  const uint32_t length = htonl(static_cast<uint32_t>(payload.size()));
  std::string frame(reinterpret_cast<const char*>(&length), FrameBuffer::kHeaderBytes);
  frame.append(payload.data(), payload.size());
  return Send(frame, deadline);
}

absl::Status Socket::Receive(FrameBuffer& data, size_t most) {
  char chunk[16384];
  for (size_t received = 0; received < most;) {
    const ssize_t bytes = recv(fd_, chunk, sizeof(chunk), 0);
    if (bytes > 0) {
      data.Append({chunk, static_cast<size_t>(bytes)});
      received += static_cast<size_t>(bytes);
    } else if (bytes == 0) {
      return absl::UnavailableError("the connection was closed");
    } else if (errno == EAGAIN) {
      return absl::OkStatus();
    } else if (errno != EINTR) {
      return absl::UnavailableError(Reason());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Socket::ReceiveFrame(SteadyTime deadline, uint32_t most) {
  std::string payload;
  while (true) {
    // A last frame and the end of the connection may come together: look at the frame first.
    const absl::Status received = Receive(received_, 1);
    const absl::StatusOr<bool> taken = received_.Take(most, payload);
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

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

std::string HostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

}  // namespace brigade::collectives::internal
