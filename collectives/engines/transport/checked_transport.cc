#include "brigade/collectives/engines/transport/checked_transport.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

uint32_t ChecksumOfBytes(const void* data, int64_t bytes) {
  return device::Crc32c({static_cast<const char*>(data), static_cast<size_t>(bytes)});
}

}  // namespace

CheckedTransport::CheckedTransport(Transport& transport, bool verifies)
    : transport_(transport), verifies_(verifies), peers_(static_cast<size_t>(transport.size())) {
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
  if (peer.state != FrameState::kExpected) return SendPayload(to, data, bytes);
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
  if (peer.has_arrived) {
    peer.has_arrived = false;
    return absl::OkStatus();
  }
  BRIGADE_RETURN_IF_ERROR(transport_.Await(from));
  if (peer.expected.empty()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(transport_.Await(from));
  const Verified& payload = peer.expected.front();
  const uint32_t arrived = ChecksumOfBytes(payload.data, payload.bytes);
  if (arrived != payload.checksum) return Damaged(from);
  peer.expected.pop_front();
  return absl::OkStatus();
}

absl::Status CheckedTransport::Flush() {
  BRIGADE_RETURN_IF_ERROR(CheckFrames());
  BRIGADE_RETURN_IF_ERROR(transport_.Flush());
  for (Peer& peer : peers_) peer.sent.clear();
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
  peer.out.checksum = verifies_ ? ChecksumOf(peer.out) : kNoChecksum;
  const auto filled = static_cast<int64_t>(offsetof(Frame, payload)) + std::max<int64_t>(bytes, 0);
  return transport_.SendUpTo(to, &peer.out, filled, sizeof(peer.out));
}

absl::Status CheckedTransport::SendPayload(int to, const void* data, int64_t bytes) {
  BRIGADE_RETURN_IF_ERROR(transport_.Send(to, data, bytes));
  if (!verifies_) return absl::OkStatus();
  std::deque<uint32_t>& sent = peers_[static_cast<size_t>(to)].sent;
  sent.push_back(ChecksumOfBytes(data, bytes));
  return transport_.Send(to, &sent.back(), sizeof(sent.back()));
}

absl::Status CheckedTransport::ExpectFrame(int from) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  peer.state = FrameState::kExpected;
  unchecked_.push_back(from);
  return transport_.Expect(from, &peer.in, sizeof(peer.in));
}

absl::Status CheckedTransport::ExpectPayload(int from, const Incoming& payload) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  if (!peer.has_payload) {
    BRIGADE_RETURN_IF_ERROR(transport_.Expect(from, payload.data, payload.bytes));
    if (!verifies_) return absl::OkStatus();
    peer.expected.push_back({payload.data, payload.bytes, 0});
    uint32_t& checksum = peer.expected.back().checksum;
    return transport_.Expect(from, &checksum, sizeof(checksum));
  }
  peer.has_payload = false;
  if (peer.in.inline_bytes != payload.bytes || payload.bytes > kInlineBytes) {
    return End(
        absl::StatusCode::kInternal,
        absl::StrCat("rank ", from, " sends ", peer.in.inline_bytes, " bytes where rank ", rank(),
                     " expects ", payload.bytes, " in the same call: ", Describe(rank(), mine_)));
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
    BRIGADE_RETURN_IF_ERROR(SendPayload(payload.to, payload.data, payload.bytes));
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
    if (each != rank()) {
      BRIGADE_RETURN_IF_ERROR(transport_.Await(each));
      BRIGADE_RETURN_IF_ERROR(VerifyFrame(each));
    }
    if (of(each) == of(first)) continue;
    const absl::Status mismatch = MismatchError(first, of(first), each, of(each));
    return End(mismatch.code(), mismatch.message());
  }
  unchecked_.erase(std::find(unchecked_.begin(), unchecked_.end(), rank()));
  return absl::OkStatus();
}

uint32_t CheckedTransport::ChecksumOf(const Frame& frame) {
  const uint32_t head = ChecksumOfBytes(&frame, static_cast<int64_t>(offsetof(Frame, checksum)));
  return device::Crc32c(
      {frame.payload, static_cast<size_t>(std::max<int64_t>(frame.inline_bytes, 0))}, head);
}

absl::Status CheckedTransport::VerifyFrame(int from) {
  const Frame& frame = peers_[static_cast<size_t>(from)].in;
  if ((frame.checksum >= 0) != verifies_) {
    return End(absl::StatusCode::kInvalidArgument,
               absl::StrCat("rank ", verifies_ ? rank() : from,
                            " verifies what messages carry, but rank ", verifies_ ? from : rank(),
                            " does not: it must be the same on all; where it is, what rank ", from,
                            " sent to rank ", rank(), " has arrived with other bits"));
  }
  if (!verifies_) return absl::OkStatus();
  // As many bytes as it says may be what is damaged.
  const bool has_room = frame.inline_bytes <= kInlineBytes;
  return has_room && ChecksumOf(frame) == frame.checksum ? absl::OkStatus() : Damaged(from);
}

absl::Status CheckedTransport::Damaged(int from) {
  return End(absl::StatusCode::kDataLoss,
             absl::StrCat("what rank ", from, " sent to rank ", rank(),
                          " has arrived with other bits: a fault of the network between them, or "
                          "of memory on the way; ",
                          Describe(rank(), mine_)));
}

absl::Status CheckedTransport::End(absl::StatusCode code, absl::string_view finding) {
  const std::string group = transport_.name();
  transport_.Abort(absl::Status(
      code, absl::StrCat(group.empty() ? "" : absl::StrCat("in the ", group, ": "), finding)));
  return transport_.status();
}

std::string CheckedTransport::Activity() const {
  device::MutexLock lock(mutex_);
  return activity_.has_value() ? Describe(rank(), *activity_) : "";
}

}  // namespace brigade::collectives
