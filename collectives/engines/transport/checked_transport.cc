#include "brigade/collectives/engines/transport/checked_transport.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {

CheckedTransport::CheckedTransport(Transport& transport)
    : transport_(transport), peers_(static_cast<size_t>(transport.size())) {
  transport_.SetActivity([this] { return Activity(); });
}

absl::Status CheckedTransport::Begin(const Fingerprint& fingerprint, int to, int from) {
  {
    device::MutexLock lock(mutex_);
    activity_ = fingerprint;
  }
  mine_ = fingerprint;
  for (Peer& peer : peers_) {
    peer.is_sent = peer.has_payload = peer.has_arrived = false;
    peer.state = FrameState::kNotExpected;
    peer.deferred.clear();
  }
  unchecked_.clear();
  deferred_.clear();
  to_ = to;
  return from == rank() ? absl::OkStatus() : ExpectFrame(from);
}

absl::Status CheckedTransport::SendUpTo(int to, const void* data, int64_t bytes, int64_t capacity) {
  if (capacity != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("Send: ", bytes, " bytes of a capacity of ", capacity, " to rank ", to));
  }
  const Peer& peer = peers_[static_cast<size_t>(to)];
  if (!peer.is_sent) {
    if (bytes <= kInlineBytes) return SendFrame(to, data, bytes);
    BRIGADE_RETURN_IF_ERROR(SendFrame(to, nullptr, -1));
  }
  if (peer.state != FrameState::kExpected) return transport_.Send(to, data, bytes);
  deferred_.push_back({to, data, bytes});
  return absl::OkStatus();
}

absl::Status CheckedTransport::Expect(int from, void* data, int64_t bytes) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  if (peer.state == FrameState::kNotExpected) BRIGADE_RETURN_IF_ERROR(ExpectFrame(from));
  if (peer.state == FrameState::kChecked) return ExpectPayload(from, {data, bytes});
  peer.deferred.push_back({data, bytes});
  return absl::OkStatus();
}

absl::Status CheckedTransport::Await(int from) {
  BRIGADE_RETURN_IF_ERROR(CheckFrames());
  Peer& peer = peers_[static_cast<size_t>(from)];
  if (!peer.has_arrived) return transport_.Await(from);
  peer.has_arrived = false;
  return absl::OkStatus();
}

absl::Status CheckedTransport::Flush() {
  BRIGADE_RETURN_IF_ERROR(CheckFrames());
  BRIGADE_RETURN_IF_ERROR(transport_.Flush());
  device::MutexLock lock(mutex_);
  activity_.reset();
  return absl::OkStatus();
}

absl::Status CheckedTransport::SendFrame(int to, const void* payload, int64_t bytes) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  peer.is_sent = true;
  peer.out.fingerprint = mine_;
  peer.out.inline_bytes = bytes;
  if (bytes > 0) std::memcpy(peer.out.payload, payload, static_cast<size_t>(bytes));
  const auto filled = static_cast<int64_t>(offsetof(Frame, payload)) + std::max<int64_t>(bytes, 0);
  return transport_.SendUpTo(to, &peer.out, filled, sizeof(peer.out));
}

absl::Status CheckedTransport::ExpectFrame(int from) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  peer.state = FrameState::kExpected;
  unchecked_.push_back(from);
  return transport_.Expect(from, &peer.in, sizeof(peer.in));
}

absl::Status CheckedTransport::ExpectPayload(int from, const Incoming& payload) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  if (!peer.has_payload) return transport_.Expect(from, payload.data, payload.bytes);
  peer.has_payload = false;
  if (peer.in.inline_bytes != payload.bytes || payload.bytes > kInlineBytes) {
    transport_.Abort(absl::InternalError(
        absl::StrCat("rank ", from, " sends ", peer.in.inline_bytes, " bytes where rank ", rank(),
                     " expects ", payload.bytes, " in the same call: ", Describe(rank(), mine_))));
    return transport_.status();
  }
  if (payload.bytes > 0) {
    std::memcpy(payload.data, peer.in.payload, static_cast<size_t>(payload.bytes));
  }
  peer.has_arrived = true;
  return absl::OkStatus();
}

absl::Status CheckedTransport::CheckFrames() {
  if (to_ != rank() && !peers_[static_cast<size_t>(to_)].is_sent) {
    BRIGADE_RETURN_IF_ERROR(SendFrame(to_, nullptr, -1));
  }
  if (unchecked_.empty()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CompareFrames());
  for (const int from : unchecked_) {
    Peer& peer = peers_[static_cast<size_t>(from)];
    peer.state = FrameState::kChecked;
    peer.has_payload = peer.in.inline_bytes >= 0;
    for (const Incoming& payload : peer.deferred) {
      BRIGADE_RETURN_IF_ERROR(ExpectPayload(from, payload));
    }
  }
  unchecked_.clear();
  for (const Outgoing& payload : deferred_) {
    BRIGADE_RETURN_IF_ERROR(transport_.Send(payload.to, payload.data, payload.bytes));
  }
  deferred_.clear();
  return absl::OkStatus();
}

// Waits for the frames in ascending order of ranks, this rank among them, so that in a call of all
// with all every rank names the same two.
absl::Status CheckedTransport::CompareFrames() {
  unchecked_.push_back(rank());
  std::sort(unchecked_.begin(), unchecked_.end());
  const auto of = [&](int rank) -> const Fingerprint& {
    return rank == this->rank() ? mine_ : peers_[static_cast<size_t>(rank)].in.fingerprint;
  };
  const int first = unchecked_.front();
  for (const int each : unchecked_) {
    if (each != rank()) BRIGADE_RETURN_IF_ERROR(transport_.Await(each));
    if (of(each) == of(first)) continue;
    transport_.Abort(MismatchError(first, of(first), each, of(each)));
    return transport_.status();
  }
  unchecked_.erase(std::find(unchecked_.begin(), unchecked_.end(), rank()));
  return absl::OkStatus();
}

std::string CheckedTransport::Activity() const {
  device::MutexLock lock(mutex_);
  return activity_.has_value() ? Describe(rank(), *activity_) : "";
}

}  // namespace brigade::collectives
