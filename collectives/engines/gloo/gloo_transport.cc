#include "brigade/collectives/engines/gloo/gloo_transport.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/gloo/mesh.h"
#include "brigade/collectives/engines/gloo/transport_impl.h"

namespace brigade::collectives {
namespace internal {
namespace {

// A tag holds the number and the size of a message: others than the expected one do not match, and
// stay with their sender.
constexpr int kSizeBits = 40;
constexpr int64_t kMostBytes = (int64_t{1} << kSizeBits) - 1;
constexpr uint64_t kNumberMask = (uint64_t{1} << (63 - kSizeBits)) - 1;

uint64_t TagOf(uint64_t number, int64_t bytes) {
  return (number & kNumberMask) << kSizeBits | static_cast<uint64_t>(bytes);
}

}  // namespace

TransportImpl::TransportImpl(const GlooOptions& options, Mesh mesh)
    : options_(options),
      timeout_(absl::ToChronoNanoseconds(
          std::clamp(options.timeout, absl::ZeroDuration(), absl::Hours(24 * 365)))),
      mesh_(std::move(mesh)),
      peers_(options.size) {
  if (mesh_.context == nullptr) return;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank == options_.rank) continue;
    peers_[rank].in = BufferOverAllMemory(*mesh_.context);
    peers_[rank].out = BufferOverAllMemory(*mesh_.context);
  }
  posts_.emplace(mesh_.device,
                 [this](int peer, const absl::Status& reason) { Break(peer, reason); });
  control_.emplace(*mesh_.context,
                   ControlChannel::Listener{
                       [this](int peer, const ControlMessage& message) { Hear(peer, message); },
                       [this](int peer, const absl::Status& reason) { Miss(peer, reason); }});
  control_->Start();
  watchdog_ = std::thread([this] { WatchDeadlines(); });
}

TransportImpl::~TransportImpl() {
  if (mesh_.context == nullptr) return;
  posts_->Stop();  // Leave may close connections, which waits for Gloo's thread
  if (!failed_) control_->Leave();
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  watchdog_.join();
  control_->Stop();
}

absl::Status TransportImpl::Send(int to, const void* data, int64_t bytes) {
  const absl::Status status = Check("Send", to, data, bytes);
  if (!status.ok()) return status;
  Peer& peer = peers_[to];
  posts_->Push({peer.out.get(), PostQueue::Post::kSend, to, TagOf(peer.sent, bytes), OffsetOf(data),
                static_cast<size_t>(bytes)});
  posts_->Wake();
  ++peer.sent;
  peer.sent_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status TransportImpl::Expect(int from, void* data, int64_t bytes) {
  const absl::Status status = Check("Expect", from, data, bytes);
  if (!status.ok()) return status;
  Peer& peer = peers_[from];
  // No Wake: what this rank sends or awaits next goes in the same turn.
  posts_->Push({peer.in.get(), PostQueue::Post::kReceive, from, TagOf(peer.expected, bytes),
                OffsetOf(data), static_cast<size_t>(bytes)});
  ++peer.expected;
  return absl::OkStatus();
}

absl::Status TransportImpl::Await(int from) {
  const absl::Status status = Check("Await", from, nullptr, 0);
  if (!status.ok()) return status;
  Peer& peer = peers_[from];
  if (peer.awaited == peer.expected) {
    return absl::FailedPreconditionError(
        absl::StrCat("Await: no message of rank ", from, " is expected"));
  }
  ++peer.awaited;
  return Wait(from, "sent nothing", [&] { return peer.in->waitRecv(nullptr, kForever); });
}

absl::Status TransportImpl::Flush() {
  if (!Works()) return FinalError();
  if (posts_) posts_->Wake();
  for (int rank = 0; rank < options_.size; ++rank) {
    Peer& peer = peers_[rank];
    for (; peer.flushed < peer.sent; ++peer.flushed) {
      const absl::Status status =
          Wait(rank, "took nothing", [&] { return peer.out->waitSend(nullptr, kForever); });
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

void TransportImpl::Abort(const absl::Status& reason) {
  Fail(
      reason.ok() ? absl::CancelledError(absl::StrCat("rank ", options_.rank, " aborted")) : reason,
      options_.rank);
}

absl::Status TransportImpl::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

int64_t TransportImpl::sent_bytes(int to) const {
  if (to < 0 || to >= options_.size) return 0;
  return peers_[to].sent_bytes.load(std::memory_order_relaxed);
}

absl::Status TransportImpl::Check(const char* call, int peer, const void* data, int64_t bytes) {
  if (!Works()) return FinalError();
  if (peer < 0 || peer >= options_.size || peer == options_.rank) {
    return absl::InvalidArgumentError(absl::StrCat(call, ": rank ", peer, " is no peer of rank ",
                                                   options_.rank, " of ", options_.size));
  }
  if (bytes < 0 || bytes > kMostBytes || (data == nullptr && bytes > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        call, ": ", bytes, " bytes", data == nullptr ? " at null" : "", ", with rank ", peer));
  }
  return absl::OkStatus();
}

// False once there is a final error.
bool TransportImpl::Works() {
  if (!failed_ && broken_ >= 0) Lose(broken_, why_broken_);
  return !failed_;
}

absl::Status TransportImpl::Wait(int peer, const char* failing, absl::FunctionRef<bool()> wait) {
  posts_->Wake();
  {
    std::lock_guard lock(mutex_);
    waiting_ = {peer, waiting_.number + 1, failing, Clock::now() + timeout_};
    // The watchdog need not wake: it looks at least once a timeout.
  }
  bool completed = false;
  const absl::Status status = Guarded([&] { completed = wait(); });
  {
    std::lock_guard lock(mutex_);
    waiting_.peer = -1;
  }
  if (!status.ok()) Lose(peer, status);
  if (status.ok() && completed && !failed_) return absl::OkStatus();
  Works();
  return FinalError();
}

}  // namespace internal

absl::StatusOr<std::unique_ptr<GlooTransport>> CreateGlooTransport(const GlooOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("no rank ", options.rank, " in a group of ", options.size));
  }
  internal::Mesh mesh;
  if (options.size > 1) {
    if (options.store == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("a group of ", options.size, " needs a store"));
    }
    auto connected = internal::ConnectMesh(options);
    if (!connected.ok()) return connected.status();
    mesh = *std::move(connected);
  }
  std::unique_ptr<GlooTransport> transport;
  const absl::Status made = internal::Guarded(
      [&] { transport = std::make_unique<internal::TransportImpl>(options, std::move(mesh)); });
  if (!made.ok()) return made;
  return transport;
}

}  // namespace brigade::collectives
