#include "brigade/collectives/engines/gloo/proved_pair.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <utility>

#include "brigade/collectives/engines/gloo/mesh.h"

namespace brigade::collectives::internal {
namespace {

// Of the size that Gloo's library expects; of missing/gloo/common/memory.h, where that is missing.
static_assert(sizeof(::gloo::WeakNonOwningPtr<int>) == sizeof(std::weak_ptr<int>));

// In a time that does not depend on where they differ.
bool AreEqual(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

bool SendProof(int fd, const std::string& proof) {
  // It fits into the memory of a new connection.
  return send(fd, proof.data(), proof.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(proof.size());
}

enum class Heard : uint8_t { kSome, kAll, kEnd };

// What is there of a proof, and no byte behind it.
Heard HearProof(int fd, std::string& heard) {
  char bytes[kProofBytes];
  const ssize_t count = recv(fd, bytes, kProofBytes - heard.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kSome;
  if (count <= 0) return Heard::kEnd;
  heard.append(bytes, static_cast<size_t>(count));
  return heard.size() == kProofBytes ? Heard::kAll : Heard::kSome;
}

void NameStranger(int fd) {
  static std::atomic<bool> is_named = false;
  if (is_named.exchange(true)) return;
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0) {
    getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host, sizeof(host), port,
                sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  }
  std::fprintf(
      stderr, "brigade: refused %s, port %s, which is no rank of the group; others are not named\n",
      host, port);
}

}  // namespace

ProvedPair::ProvedPair(::gloo::transport::tcp::Context* context,
                       ::gloo::transport::tcp::Device* device, int rank,
                       std::chrono::milliseconds timeout)
    : Pair(context, device, rank, timeout) {}

ProvedPair::~ProvedPair() {
  // The device's thread, which may be about to close them too, does nothing without the lock. It
  // never waits for it, so that it can be waited for: from here on its calls would reach the base.
  const std::lock_guard<std::mutex> lock(m_);
  const absl::Status closed = Guarded([&] {
    if (state_ != CLOSED) changeState(CLOSED);
  });
  // As where nobody listened at the peer's address any more: Gloo has a socket by then that its
  // device does not know.
  if (!closed.ok()) {
    ::close(fd_);
    state_ = CLOSED;
  }
  for (Candidate& candidate : candidates_) candidate.Close();
}

bool ProvedPair::IsUntouched() {
  const std::lock_guard<std::mutex> lock(m_);
  return state_ == LISTENING;
}

bool ProvedPair::Expect(const Proofs& proofs) {
  const std::lock_guard<std::mutex> lock(m_);
  if (state_ != LISTENING) return false;
  proofs_ = proofs;
  // Who has connected may be gone before he is accepted.
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  device_->registerDescriptor(fd_, EPOLLIN, this);
  return true;
}

void ProvedPair::handleEvents(int events) {
  const absl::Status status = Guarded([&] { HandleEvents(events); });
  if (status.ok()) return;
  const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
  if (lock) Fail(status);  // else the event comes again
}

void ProvedPair::Fail(const absl::Status& status) {
  if (state_ == CLOSED) return;  // nobody asks any more
  // It may have an error already.
  Guarded([&] { signalException(std::string(status.message())); }).IgnoreError();
}

void ProvedPair::HandleEvents(int events) {
  {
    // As the base does: who holds it may wait for this thread.
    const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (!lock) return;
    if (state_ == LISTENING) return Accept();
    if (state_ == CONNECTING) return Answer();
  }
  Pair::handleEvents(events);
}

void ProvedPair::Accept() {
  if (proofs_.own.empty()) {
    device_->registerDescriptor(fd_, 0, this);  // until Expect
    return;
  }
  Candidate& place = candidates_[next_candidate_++ % candidates_.size()];
  place.Close();
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) place.Begin(this, fd);
}

void ProvedPair::Answer() {
  if (!has_sent_) {
    int error = 0;
    socklen_t bytes = sizeof(error);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) return handleConnecting();  // which says why
    has_sent_ = SendProof(fd_, proofs_.own);
    if (!has_sent_) return signalException("it takes no proof");
    device_->registerDescriptor(fd_, EPOLLIN, this);
    return;
  }
  const Heard heard = HearProof(fd_, heard_);
  if (heard == Heard::kSome) return;
  if (heard == Heard::kEnd) return signalException("it has closed the connection");
  if (!AreEqual(heard_, proofs_.others)) return signalException("who answers is not that rank");
  handleConnected();
}

// The peer's connection, in place of the listening socket.
void ProvedPair::Take(int fd) {
  if (!SendProof(fd, proofs_.own)) {
    ::close(fd);
    return;
  }
  device_->unregisterDescriptor(fd_, this);
  ::close(fd_);
  fd_ = fd;
  // As the base expects of a pair that it closes, which may be at once: the peer may be gone.
  device_->registerDescriptor(fd_, EPOLLIN, this);
  for (Candidate& candidate : candidates_) candidate.Close();
  handleConnected();
}

void ProvedPair::Candidate::Begin(ProvedPair* pair, int fd) {
  pair_ = pair;
  fd_ = fd;
  heard_.clear();
  pair->device_->registerDescriptor(fd, EPOLLIN, this);
}

void ProvedPair::Candidate::Close() {
  if (fd_ < 0) return;
  pair_->device_->unregisterDescriptor(fd_, this);
  ::close(std::exchange(fd_, -1));
}

void ProvedPair::Candidate::handleEvents(int) {
  const std::unique_lock<std::mutex> lock(pair_->m_, std::try_to_lock);
  if (!lock || fd_ < 0) return;
  const Heard heard = HearProof(fd_, heard_);
  if (heard == Heard::kSome) return;
  if (heard == Heard::kEnd || !AreEqual(heard_, pair_->proofs_.others) ||
      pair_->state_ != LISTENING) {
    NameStranger(fd_);
    return Close();
  }
  pair_->device_->unregisterDescriptor(fd_, this);
  const absl::Status taken = Guarded([&] { pair_->Take(std::exchange(fd_, -1)); });
  if (!taken.ok()) pair_->Fail(taken);
}

std::unique_ptr<::gloo::transport::Pair>& ProvedContext::createPair(int rank) {
  pairs_[static_cast<size_t>(rank)] =
      std::make_unique<ProvedPair>(this, device_.get(), rank, getTimeout());
  return pairs_[static_cast<size_t>(rank)];
}

}  // namespace brigade::collectives::internal
