#include "brigade/collectives/gloo/gloo_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/gloo/internal/connect.h"
#include "brigade/collectives/gloo/internal/control.h"

namespace brigade::collectives {
namespace {

using ::brigade::collectives::internal::BufferOverAllMemory;
using ::brigade::collectives::internal::ControlChannel;
using ::brigade::collectives::internal::ControlMessage;
using ::brigade::collectives::internal::Guarded;
using ::brigade::collectives::internal::kForever;
using ::brigade::collectives::internal::OffsetOf;
using Clock = std::chrono::steady_clock;

// A tag holds the number and the size of a message: others than the expected one do not match, and
// stay with their sender.
constexpr int kSizeBits = 40;
constexpr int64_t kMostBytes = (int64_t{1} << kSizeBits) - 1;
constexpr uint64_t kNumberMask = (uint64_t{1} << (63 - kSizeBits)) - 1;

uint64_t TagOf(uint64_t number, int64_t bytes) {
  return (number & kNumberMask) << kSizeBits | static_cast<uint64_t>(bytes);
}

// What the receive thread of a peer knows better than an exception elsewhere: whether the peer said
// why it closed its connection.
constexpr std::chrono::seconds kExplanationTimeout{1};

class Impl final : public GlooTransport {
 public:
  Impl(const GlooOptions& options, std::shared_ptr<::gloo::transport::Context> context)
      : options_(options),
        timeout_(absl::ToChronoNanoseconds(
            std::clamp(options.timeout, absl::ZeroDuration(), absl::Hours(24 * 365)))),
        context_(std::move(context)),
        peers_(options.size) {
    if (context_ == nullptr) return;
    for (int rank = 0; rank < options_.size; ++rank) {
      if (rank == options_.rank) continue;
      peers_[rank].in = BufferOverAllMemory(*context_);
      peers_[rank].out = BufferOverAllMemory(*context_);
    }
    control_.emplace(*context_,
                     ControlChannel::Listener{
                         [this](int peer, const ControlMessage& message) { Hear(peer, message); },
                         [this](int peer, const absl::Status& reason) { Miss(peer, reason); }});
    control_->Start();
    watchdog_ = std::thread([this] { WatchDeadlines(); });
  }

  ~Impl() override {
    if (context_ == nullptr) return;
    if (!failed_) control_->Leave();
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
      changed_.notify_all();
    }
    watchdog_.join();
    control_.reset();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  const std::shared_ptr<Store>& store() const override { return options_.store; }

  absl::Status Send(int to, const void* data, int64_t bytes) override {
    absl::Status status = Check("Send", to, data, bytes);
    if (!status.ok()) return status;
    Peer& peer = peers_[to];
    status = Guarded([&] { peer.out->send(to, TagOf(peer.sent, bytes), OffsetOf(data), bytes); });
    if (!status.ok()) return Lost(to, status);
    ++peer.sent;
    peer.sent_bytes.fetch_add(bytes, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  absl::Status Expect(int from, void* data, int64_t bytes) override {
    absl::Status status = Check("Expect", from, data, bytes);
    if (!status.ok()) return status;
    Peer& peer = peers_[from];
    status =
        Guarded([&] { peer.in->recv(from, TagOf(peer.expected, bytes), OffsetOf(data), bytes); });
    if (!status.ok()) return Lost(from, status);
    ++peer.expected;
    return absl::OkStatus();
  }

  absl::Status Await(int from) override {
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

  absl::Status Flush() override {
    if (failed_) return FinalError();
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

  void Abort(const absl::Status& reason) override {
    Fail(reason.ok() ? absl::CancelledError(absl::StrCat("rank ", options_.rank, " aborted"))
                     : reason,
         options_.rank);
  }

  absl::Status status() const override {
    std::lock_guard lock(mutex_);
    return status_;
  }

  int64_t sent_bytes(int to) const override {
    if (to < 0 || to >= options_.size) return 0;
    return peers_[to].sent_bytes.load(std::memory_order_relaxed);
  }

 private:
  struct Peer {
    std::unique_ptr<::gloo::transport::UnboundBuffer> in, out;
    // Messages so far.
    uint64_t sent = 0, flushed = 0, expected = 0, awaited = 0;
    std::atomic<int64_t> sent_bytes = 0;
    // Guarded by mutex_.
    bool left = false;
    bool answered = false;
    int waits_for = -1;  // its answer
  };

  // What this rank waits for; guarded by mutex_.
  struct Waiting {
    int peer = -1;
    uint64_t number = 0;  // tells one wait from the next
    const char* failing = "";
    Clock::time_point deadline;
  };

  absl::Status Check(const char* call, int peer, const void* data, int64_t bytes);
  template <typename F>
  absl::Status Wait(int peer, const char* failing, F wait);
  absl::Status Lost(int peer, const absl::Status& reason);
  absl::Status FinalError();
  void Fail(const absl::Status& reason, int reporter);

  // From the threads of control_.
  void Hear(int peer, const ControlMessage& message);
  void Miss(int peer, const absl::Status& reason);

  // From watchdog_.
  void WatchDeadlines();
  std::string NameCulprit(const Waiting& waiting);
  bool Probe(int peer, Clock::time_point deadline, int& waits_for);

  const GlooOptions options_;
  const Clock::duration timeout_;
  const std::shared_ptr<::gloo::transport::Context> context_;
  std::vector<Peer> peers_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> failed_ = false;
  absl::Status status_;
  Waiting waiting_;
  bool closing_ = false;

  std::optional<ControlChannel> control_;
  std::thread watchdog_;
};

absl::Status Impl::Check(const char* call, int peer, const void* data, int64_t bytes) {
  if (failed_) return FinalError();
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

template <typename F>
absl::Status Impl::Wait(int peer, const char* failing, F wait) {
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
  if (!status.ok()) return Lost(peer, status);
  if (completed && !failed_) return absl::OkStatus();
  return FinalError();
}

// An exception of Gloo: the connection is closed. The thread that listens to the peer sees the
// same, after what the peer had to say last.
absl::Status Impl::Lost(int peer, const absl::Status& reason) {
  bool left = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kExplanationTimeout,
                      [&] { return !status_.ok() || peers_[peer].left; });
    left = peers_[peer].left;
  }
  Fail(absl::UnavailableError(left ? absl::StrCat("rank ", peer, " has left, but rank ",
                                                  options_.rank, " still needs it")
                                   : absl::StrCat("rank ", peer, " is gone: ", reason.message())),
       options_.rank);
  return FinalError();
}

// Only from the thread that uses the transport, so nobody waits on what goes away here.
absl::Status Impl::FinalError() {
  std::lock_guard lock(mutex_);
  // Gloo drops what comes for a buffer that is no more: the caller's memory is his own again.
  for (Peer& peer : peers_) peer.in.reset();
  return status_;
}

void Impl::Fail(const absl::Status& reason, int reporter) {
  {
    std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    status_ = reporter == options_.rank
                  ? reason
                  : absl::Status(reason.code(), absl::StrCat(reason.message(),
                                                             " (reported by rank ", reporter, ")"));
    failed_ = true;
    for (Peer& peer : peers_) {
      if (peer.in) peer.in->abortWaitRecv();
      if (peer.out) peer.out->abortWaitSend();
    }
    changed_.notify_all();
  }
  // Whoever hears of it passes it on, for the first one may die before it has told all.
  ControlMessage message;
  message.kind = ControlMessage::kAbort;
  message.code = static_cast<int32_t>(reason.code());
  message.rank = reporter;
  const size_t length = std::min(reason.message().size(), sizeof(message.text) - 1);
  std::memcpy(message.text, reason.message().data(), length);
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank != options_.rank) control_->Send(rank, message);
  }
}

void Impl::Hear(int peer, const ControlMessage& message) {
  switch (message.kind) {
    case ControlMessage::kAbort: {
      const size_t length = strnlen(message.text, sizeof(message.text));
      Fail(absl::Status(static_cast<absl::StatusCode>(message.code),
                        absl::string_view(message.text, length)),
           message.rank);
      return;
    }
    case ControlMessage::kProbe: {
      ControlMessage answer;
      answer.kind = ControlMessage::kAnswer;
      {
        std::lock_guard lock(mutex_);
        answer.rank = waiting_.peer;
      }
      control_->Send(peer, answer);
      return;
    }
    case ControlMessage::kLeave:
    case ControlMessage::kAnswer: {
      std::lock_guard lock(mutex_);
      peers_[peer].left |= message.kind == ControlMessage::kLeave;
      peers_[peer].answered |= message.kind == ControlMessage::kAnswer;
      peers_[peer].waits_for = message.rank;
      changed_.notify_all();
      return;
    }
    default:
      return;
  }
}

void Impl::Miss(int peer, const absl::Status& reason) {
  {
    std::lock_guard lock(mutex_);
    if (peers_[peer].left) return;
  }
  Fail(absl::UnavailableError(absl::StrCat("rank ", peer, " is gone: ", reason.message())),
       options_.rank);
}

void Impl::WatchDeadlines() {
  std::unique_lock lock(mutex_);
  while (!closing_ && status_.ok()) {
    const Clock::time_point now = Clock::now();
    if (waiting_.peer >= 0 && waiting_.deadline <= now) {
      const Waiting waiting = waiting_;
      lock.unlock();
      const std::string message = NameCulprit(waiting);
      lock.lock();
      if (waiting_.peer < 0 || waiting_.number != waiting.number) continue;  // just in time
      lock.unlock();
      Fail(absl::DeadlineExceededError(message), options_.rank);
      return;
    }
    // A wait that begins meanwhile ends after this, so nobody has to wake this thread.
    changed_.wait_until(lock, waiting_.peer >= 0 ? waiting_.deadline : now + timeout_);
  }
}

// Follows the waits from rank to rank. The message begins with the culprit.
std::string Impl::NameCulprit(const Waiting& waiting) {
  const Clock::time_point deadline = Clock::now() + timeout_ / 10;
  const std::string waited =
      absl::StrCat(waiting.failing, " for ", absl::FormatDuration(absl::FromChrono(timeout_)));
  std::string chain = absl::StrCat("rank ", options_.rank, " waits for rank ", waiting.peer);
  std::set<int> visited = {options_.rank};
  int suspect = waiting.peer;
  while (visited.insert(suspect).second) {
    int waits_for = -1;
    const bool answers = Probe(suspect, deadline, waits_for);
    if (!answers || waits_for < 0) {
      return absl::StrCat("rank ", suspect, suspect == waiting.peer ? " " + waited : "",
                          suspect == waiting.peer ? " and " : " ",
                          answers ? "is alive, but waits for nobody" : "does not answer", " (",
                          chain, ")");
    }
    absl::StrAppend(&chain, ", which waits for rank ", waits_for);
    suspect = waits_for;
  }
  return absl::StrCat("rank ", waiting.peer, " ", waited,
                      "; the ranks disagree about the order or the size of messages (", chain, ")");
}

// Whether the peer answers, and whom it waits for, or -1.
bool Impl::Probe(int peer, Clock::time_point deadline, int& waits_for) {
  ControlMessage message;
  message.kind = ControlMessage::kProbe;
  {
    std::lock_guard lock(mutex_);
    peers_[peer].answered = false;
  }
  control_->Send(peer, message);
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline,
                      [&] { return peers_[peer].answered || closing_ || !status_.ok(); });
  waits_for = peers_[peer].waits_for;
  return peers_[peer].answered;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GlooTransport>> CreateGlooTransport(const GlooOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("no rank ", options.rank, " in a group of ", options.size));
  }
  std::shared_ptr<::gloo::transport::Context> context;
  if (options.size > 1) {
    if (options.store == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("a group of ", options.size, " needs a store"));
    }
    auto connected = internal::ConnectMesh(options);
    if (!connected.ok()) return connected.status();
    context = *std::move(connected);
  }
  return std::unique_ptr<GlooTransport>(new Impl(options, std::move(context)));
}

}  // namespace brigade::collectives
