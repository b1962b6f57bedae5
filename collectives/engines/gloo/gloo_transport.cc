#include "brigade/collectives/engines/gloo/gloo_transport.h"

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/gloo/control_channel.h"
#include "brigade/collectives/engines/gloo/failure_detector.h"
#include "brigade/collectives/engines/gloo/mesh.h"
#include "brigade/collectives/engines/gloo/post_queue.h"
#include "gloo/transport/unbound_buffer.h"

namespace brigade::collectives {
namespace {

using internal::BufferOverAllMemory;
using internal::FailureDetector;
using internal::Guarded;
using internal::kForever;
using internal::Mesh;
using internal::OffsetOf;
using internal::PostQueue;

// A tag holds the number and the size of a message, or its capacity: others than the expected one
// do not match, and stay with their sender. Gloo takes shorter messages than a receive has room
// for.
constexpr int kSizeBits = 40;
constexpr int64_t kMostBytes = (int64_t{1} << kSizeBits) - 1;
constexpr uint64_t kNumberMask = (uint64_t{1} << (63 - kSizeBits)) - 1;

uint64_t TagOf(uint64_t number, int64_t bytes) {
  return (number & kNumberMask) << kSizeBits | static_cast<uint64_t>(bytes);
}

class GlooTransportImpl final : public GlooTransport {
 public:
  // `mesh` is empty in a group of one.
  GlooTransportImpl(const GlooOptions& options, Mesh mesh,
                    std::shared_ptr<internal::RankWaits> waits);
  ~GlooTransportImpl() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string name() const override { return options_.name; }
  const std::shared_ptr<Store>& store() const override { return options_.store; }

  absl::Status SendUpTo(int to, const void* data, int64_t bytes, int64_t capacity) override;
  absl::Status Expect(int from, void* data, int64_t bytes) override;
  absl::Status Await(int from) override;
  absl::Status Flush() override;
  void Abort(const absl::Status& reason) override;
  absl::Status status() const override { return failures_->status(); }
  void SetActivity(std::function<std::string()> activity) override {
    failures_->SetActivity(std::move(activity));
  }
  int64_t sent_bytes(int to) const override;

 private:
  struct Peer {
    std::unique_ptr<::gloo::transport::UnboundBuffer> in, out;
    // Messages so far.
    uint64_t sent = 0, flushed = 0, expected = 0, awaited = 0;
    std::atomic<int64_t> sent_bytes = 0;
  };

  absl::Status Check(const char* call, int peer, const void* data, int64_t bytes);
  absl::Status Wait(int peer, const char* failing, absl::FunctionRef<bool()> wait);
  absl::Status FinalError();
  void EndWaits();

  const GlooOptions options_;
  const Mesh mesh_;
  std::vector<Peer> peers_;
  std::optional<FailureDetector> failures_;
  // None in a group of one.
  std::optional<PostQueue> posts_;
};

GlooTransportImpl::GlooTransportImpl(const GlooOptions& options, Mesh mesh,
                                     std::shared_ptr<internal::RankWaits> waits)
    : options_(options), mesh_(std::move(mesh)), peers_(static_cast<size_t>(options.size)) {
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank == options_.rank) continue;
    peers_[rank].in = BufferOverAllMemory(*mesh_.context);
    peers_[rank].out = BufferOverAllMemory(*mesh_.context);
  }
  failures_.emplace(options_.rank, options_.size, options_.name, options_.timeout,
                    mesh_.context.get(), std::move(waits), [this] { EndWaits(); });
  if (mesh_.context == nullptr) return;
  posts_.emplace(mesh_.device, [this](int peer, const absl::Status& reason) {
    failures_->ReportRefused(peer, reason);
  });
}

// Nothing is posted any more when the detector announces the end, which may close connections and
// waits for Gloo's thread.
GlooTransportImpl::~GlooTransportImpl() {
  posts_.reset();
  failures_.reset();
}

absl::Status GlooTransportImpl::SendUpTo(int to, const void* data, int64_t bytes,
                                         int64_t capacity) {
  absl::Status status = Check("Send", to, data, bytes);
  if (status.ok() && (capacity < bytes || capacity > kMostBytes)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("Send: ", bytes, " bytes of a capacity of ", capacity, ", with rank ", to));
  }
  if (!status.ok()) return status;
  Peer& peer = peers_[to];
  posts_->Push({peer.out.get(), PostQueue::Post::kSend, to, TagOf(peer.sent, capacity),
                OffsetOf(data), static_cast<size_t>(bytes)});
  posts_->Wake();
  ++peer.sent;
  peer.sent_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status GlooTransportImpl::Expect(int from, void* data, int64_t bytes) {
  const absl::Status status = Check("Expect", from, data, bytes);
  if (!status.ok()) return status;
  Peer& peer = peers_[from];
  // No Wake: what this rank sends or awaits next goes in the same turn.
  posts_->Push({peer.in.get(), PostQueue::Post::kReceive, from, TagOf(peer.expected, bytes),
                OffsetOf(data), static_cast<size_t>(bytes)});
  ++peer.expected;
  return absl::OkStatus();
}

absl::Status GlooTransportImpl::Await(int from) {
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

absl::Status GlooTransportImpl::Flush() {
  if (failures_->HasFailed()) return FinalError();
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

void GlooTransportImpl::Abort(const absl::Status& reason) {
  failures_->Abort(reason.ok()
                       ? absl::CancelledError(absl::StrCat("rank ", options_.rank, " aborted"))
                       : reason);
}

int64_t GlooTransportImpl::sent_bytes(int to) const {
  if (to < 0 || to >= options_.size) return 0;
  return peers_[to].sent_bytes.load(std::memory_order_relaxed);
}

absl::Status GlooTransportImpl::Check(const char* call, int peer, const void* data, int64_t bytes) {
  if (failures_->HasFailed()) return FinalError();
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

absl::Status GlooTransportImpl::Wait(int peer, const char* failing,
                                     absl::FunctionRef<bool()> wait) {
  posts_->Wake();
  failures_->BeginWait(peer, failing);
  bool completed = false;
  const absl::Status status = Guarded([&] { completed = wait(); });
  failures_->EndWait();
  if (!status.ok()) failures_->ReportClosed(peer, status);
  if (completed && failures_->status().ok()) return absl::OkStatus();
  failures_->HasFailed();
  return FinalError();
}

// Only from the thread that uses the transport, so that no thread waits on what is destroyed here.
absl::Status GlooTransportImpl::FinalError() {
  if (posts_) posts_->Stop();
  absl::Status error = failures_->status();  // after this EndWaits is not called
  // Gloo drops what comes for a buffer that is no more: nothing is written to the caller's memory
  // from now on. The others stay: a message to send whose buffer is gone blocks its connection, and
  // the abort message behind it.
  for (Peer& peer : peers_) peer.in.reset();
  return error;
}

void GlooTransportImpl::EndWaits() {
  for (Peer& peer : peers_) {
    if (peer.in) peer.in->abortWaitRecv();
    if (peer.out) peer.out->abortWaitSend();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GlooTransport>> CreateGlooTransport(
    const GlooOptions& options, std::shared_ptr<internal::RankWaits> waits) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("no rank ", options.rank, " in a group of ", options.size));
  }
  Mesh mesh;
  absl::Status confirmed;
  if (options.size > 1) {
    if (options.store == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("a group of ", options.size, " needs a store"));
    }
    auto connected = internal::ConnectMesh(options);
    if (!connected.ok()) return connected.status();
    mesh = *std::move(connected);
    confirmed = mesh.confirmed;
  }
  if (waits == nullptr) waits = std::make_shared<internal::RankWaits>();
  std::unique_ptr<GlooTransport> transport;
  const absl::Status made = Guarded([&] {
    transport = std::make_unique<GlooTransportImpl>(options, std::move(mesh), std::move(waits));
  });
  if (!made.ok()) return made;
  if (!confirmed.ok()) {
    transport->Abort(confirmed);
    return confirmed;
  }
  return transport;
}

}  // namespace brigade::collectives
