// How a wait ends before its time: a peer is gone or silent, or somebody aborted.

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/collectives/engines/gloo/transport_impl.h"

namespace brigade::collectives::internal {
namespace {

// What the receive thread of a peer knows better than an exception elsewhere: whether the peer said
// why it closed its connection.
constexpr std::chrono::seconds kExplanationTimeout{1};

// How long a closed connection may be the news of an abort that has not arrived yet: a rank that was told earlier
// ends its process, and its reset overtakes what others had to say.
constexpr std::chrono::milliseconds kGrace{250};

}  // namespace

// An exception of Gloo: the connection is closed. The thread that listens to the peer sees the
// same, after what the peer had to say last.
void TransportImpl::Lose(int peer, const absl::Status& reason) {
  bool left = false;
  {
    std::unique_lock lock(mutex_);
    lost_ = true;
    changed_.wait_for(lock, kExplanationTimeout,
                      [&] { return !status_.ok() || peers_[peer].left; });
    left = peers_[peer].left;
  }
  Fail(absl::UnavailableError(left ? absl::StrCat("rank ", peer, " has left, but rank ",
                                                  options_.rank, " still needs it")
                                   : absl::StrCat("rank ", peer, " is gone: ", reason.message())),
       options_.rank);
}

// Gloo's thread, which the threads of control_ need as well, must not wait for their explanation here: whoever waits
// or calls next does.
void TransportImpl::Break(int peer, const absl::Status& reason) {
  std::lock_guard lock(mutex_);
  if (broken_ >= 0) return;
  why_broken_ = reason;
  broken_ = peer;
  EndWaits();
}

void TransportImpl::EndWaits() {
  for (Peer& peer : peers_) {
    if (peer.in) peer.in->abortWaitRecv();
    if (peer.out) peer.out->abortWaitSend();
  }
}

// Only from the thread that uses the transport, so nobody waits on what goes away here.
absl::Status TransportImpl::FinalError() {
  if (posts_) posts_->Stop();
  std::lock_guard lock(mutex_);
  // Gloo drops what comes for a buffer that is no more: nothing is written to the caller's memory from now on. The
  // others stay: a message to send whose buffer is gone blocks its connection, and the abort message behind it.
  for (Peer& peer : peers_) peer.in.reset();
  return status_;
}

void TransportImpl::Fail(const absl::Status& reason, int reporter) {
  {
    std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    status_ = reporter == options_.rank
                  ? reason
                  : absl::Status(reason.code(), absl::StrCat(reason.message(),
                                                             " (reported by rank ", reporter, ")"));
    failed_ = true;
    EndWaits();
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

void TransportImpl::Hear(int peer, const ControlMessage& message) {
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
        // It waits no more because of that; the abort message is on its way, or will be.
        if (lost_ || !status_.ok()) return;
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

void TransportImpl::Miss(int peer, const absl::Status& reason) {
  {
    std::unique_lock lock(mutex_);
    if (peers_[peer].left) return;
    changed_.wait_for(lock, kGrace, [&] { return closing_ || !status_.ok(); });
  }
  Fail(absl::UnavailableError(absl::StrCat("rank ", peer, " is gone: ", reason.message())),
       options_.rank);
}

void TransportImpl::WatchDeadlines() {
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
std::string TransportImpl::NameCulprit(const Waiting& waiting) {
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
bool TransportImpl::Probe(int peer, Clock::time_point deadline, int& waits_for) {
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

}  // namespace brigade::collectives::internal
