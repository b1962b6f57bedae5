#include "brigade/collectives/engines/gloo/control_channel.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "brigade/collectives/engines/gloo/mesh.h"

namespace brigade::collectives::internal {
namespace {

// How long to wait at the end for a peer that takes nothing.
constexpr std::chrono::milliseconds kLeaveTimeout = std::chrono::milliseconds(500);

}  // namespace

std::unique_ptr<::gloo::transport::UnboundBuffer> BufferOverAllMemory(
    ::gloo::transport::Context& context) {
  return context.createUnboundBuffer(nullptr, std::numeric_limits<size_t>::max());
}

ControlChannel::ControlChannel(::gloo::transport::Context& context, Listener listener)
    : rank_(context.rank), listener_(std::move(listener)), peers_(context.size) {
  for (int rank = 0; rank < context.size; ++rank) {
    if (rank == rank_) continue;
    peers_[rank].in = BufferOverAllMemory(context);
    peers_[rank].out = BufferOverAllMemory(context);
  }
}

void ControlChannel::Start() {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank == rank_) continue;
    peers_[rank].thread = std::thread(
        [this, rank, posted = PostReceive(rank)]() mutable { Watch(rank, std::move(posted)); });
  }
}

void ControlChannel::Stop() {
  for (Peer& peer : peers_) {
    if (peer.in) peer.in->abortWaitRecv();
  }
  for (Peer& peer : peers_) {
    if (peer.thread.joinable()) peer.thread.join();
  }
  // All messages are on their way or queued by now, so that a timeout, which closes every
  // connection, harms only those that took nothing.
  const auto deadline = std::chrono::steady_clock::now() + kLeaveTimeout;
  for (Peer& peer : peers_) {
    Guarded([&] {
      for (int sends = peer.sends.exchange(0); sends > 0; --sends) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        peer.out->waitSend(nullptr, std::max(left, std::chrono::milliseconds(0)));
      }
    }).IgnoreError();
  }
}

absl::Status ControlChannel::PostReceive(int rank) {
  Peer& peer = peers_[rank];
  return Guarded(
      [&] { peer.in->recv(rank, kControlTag, OffsetOf(&peer.incoming), sizeof(ControlMessage)); });
}

void ControlChannel::Watch(int rank, absl::Status posted) {
  Peer& peer = peers_[rank];
  while (true) {
    bool received = false;
    if (posted.ok()) {
      posted = Guarded([&] { received = peer.in->waitRecv(nullptr, kForever); });
    }
    if (!posted.ok()) {
      listener_.on_closed(rank, posted);
      return;
    }
    if (!received) return;
    const absl::Status valid = CheckMessage(peer.incoming, static_cast<int>(peers_.size()));
    if (!valid.ok()) {
      listener_.on_closed(rank, valid);
      return;
    }
    listener_.on_message(rank, peer.incoming);
    posted = PostReceive(rank);
  }
}

void ControlChannel::Send(int to, const ControlMessage& message) {
  Peer& peer = peers_[to];
  ControlMessage& outgoing = peer.outgoing[message.kind];
  const bool again = peer.used[message.kind].exchange(true);
  if (again && (message.kind == ControlMessage::kAbort || message.kind == ControlMessage::kLeave)) {
    return;
  }
  // The memory may still be on its way if it was used before. But probes are all alike, and one who
  // probes again has got the answer, or has given up.
  if (!again || message.kind == ControlMessage::kAnswer) outgoing = message;
  Guarded([&] {
    peer.out->send(to, kControlTag, OffsetOf(&outgoing), sizeof(ControlMessage));
    ++peer.sends;
  }).IgnoreError();
}

void ControlChannel::AnnounceLeave() {
  ControlMessage message;
  message.kind = ControlMessage::kLeave;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank != rank_) Send(rank, message);
  }
}

}  // namespace brigade::collectives::internal
