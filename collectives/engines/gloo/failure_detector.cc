#include "brigade/collectives/engines/gloo/failure_detector.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/printable.h"
#include "brigade/device/threads/deadline.h"

namespace brigade::collectives::internal {
namespace {

// How long an exception of Gloo waits for the thread that receives of the peer, which knows whether
// the peer said why it closed its connection.
constexpr absl::Duration kExplanationTimeout = absl::Seconds(1);

// How long a closed connection may be the result of an abort whose message has not arrived yet: a
// rank that was told earlier ends its process, and its reset overtakes the abort messages of
// others.
constexpr absl::Duration kAbortGrace = absl::Seconds(1);

// A live process answers a probe in this time, also where many processes share a core.
constexpr absl::Duration kLeastProbeTimeout = absl::Seconds(1);

// In timeouts, how long a wait is put off at most: for a rank that waits in another group, for one
// that waits in a third.
constexpr int kMostPutOff = 2;

// Of a wait that lasts, at least 1.
int32_t MillisecondsOf(absl::Duration wait) {
  if (wait <= absl::ZeroDuration()) return 0;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::clamp<int64_t>(absl::ToInt64Milliseconds(wait), 1, kMost));
}

}  // namespace

FailureDetector::FailureDetector(int rank, int size, std::string name, absl::Duration timeout,
                                 ::gloo::transport::Context* context,
                                 std::shared_ptr<RankWaits> waits, std::function<void()> end_waits)
    : rank_(rank),
      size_(size),
      name_(std::move(name)),
      timeout_(std::max(timeout, absl::ZeroDuration())),
      waits_(std::move(waits)),
      end_waits_(std::move(end_waits)),
      peers_(static_cast<size_t>(size)) {
  if (context == nullptr) return;
  control_ = std::make_unique<ControlChannel>(
      *context,
      ControlChannel::Listener{
          [this](int peer, const ControlMessage& message) { HandleMessage(peer, message); },
          [this](int peer, const absl::Status& reason) { HandleClosed(peer, reason); }});
  control_->Start();
  watchdog_ = std::thread([this] { WatchDeadlines(); });
  waits_->Add(*this);
}

FailureDetector::~FailureDetector() {
  if (control_ == nullptr) return;
  waits_->Remove(*this);
  if (!failed_) control_->AnnounceLeave();
  {
    device::MutexLock lock(mutex_);
    is_closing_ = true;
    changed_.SignalAll();
  }
  watchdog_.join();
  control_->Stop();
}

void FailureDetector::SetActivity(std::function<std::string()> activity) {
  device::MutexLock lock(mutex_);
  activity_ = std::move(activity);
}

void FailureDetector::BeginWait(int peer, const char* failing) {
  device::MutexLock lock(mutex_);
  wait_ = {peer, wait_.number + 1, failing, device::DeadlineAfter(timeout_), {}};
  // The watchdog need not wake: it looks at least once a timeout.
}

void FailureDetector::EndWait() {
  device::MutexLock lock(mutex_);
  wait_.peer = -1;
}

absl::Duration FailureDetector::WaitLeft() const {
  device::MutexLock lock(mutex_);
  if (wait_.peer < 0 || !status_.ok()) return absl::ZeroDuration();
  const absl::Duration until_deadline = absl::FromChrono(wait_.deadline - Clock::now());
  return std::max(until_deadline, absl::ZeroDuration()) + probe_timeout();
}

absl::Duration FailureDetector::probe_timeout() const {
  return std::max(timeout_ / 10, kLeastProbeTimeout);
}

// The thread that receives of the peer sees the same, after the last message of the peer.
void FailureDetector::ReportClosed(int peer, const absl::Status& reason) {
  bool has_left = false;
  {
    device::MutexLock lock(mutex_);
    has_lost_ = true;
    const Clock::time_point deadline = device::DeadlineAfter(kExplanationTimeout);
    while (status_.ok() && !peers_[peer].has_left && !changed_.WaitWithDeadline(mutex_, deadline)) {
    }
    has_left = peers_[peer].has_left;
  }
  FailWith(absl::StatusCode::kUnavailable,
           has_left ? absl::StrCat("rank ", peer, " has left, but rank ", rank_, " still needs it")
                    : absl::StrCat("rank ", peer, " is gone: ", reason.message()));
}

// The threads of control_ need Gloo's thread, which calls this, to learn why: the thread that uses
// the transport waits for their explanation instead.
void FailureDetector::ReportRefused(int peer, const absl::Status& reason) {
  device::MutexLock lock(mutex_);
  if (refused_ >= 0) return;
  why_refused_ = reason;
  refused_ = peer;
  end_waits_();
}

void FailureDetector::Abort(const absl::Status& reason) { Fail(reason, rank_); }

bool FailureDetector::HasFailed() {
  if (!failed_ && refused_ >= 0) ReportClosed(refused_, WhyRefused());
  return failed_;
}

absl::Status FailureDetector::WhyRefused() const {
  device::MutexLock lock(mutex_);
  return why_refused_;
}

absl::Status FailureDetector::status() const {
  device::MutexLock lock(mutex_);
  return status_;
}

void FailureDetector::Fail(const absl::Status& reason, int reporter) {
  {
    device::MutexLock lock(mutex_);
    if (!status_.ok()) return;
    status_ = reporter == rank_
                  ? reason
                  : absl::Status(reason.code(), absl::StrCat(reason.message(),
                                                             " (reported by rank ", reporter, ")"));
    failed_ = true;
    end_waits_();
    changed_.SignalAll();
  }
  // Every rank that hears of it passes it on, for the first one may die before it has told all.
  const ControlMessage message = AbortMessage(reason, reporter);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) control_->Send(rank, message);
  }
}

void FailureDetector::FailWith(absl::StatusCode code, absl::string_view finding) {
  Abort(absl::Status(
      code, name_.empty() ? std::string(finding) : absl::StrCat("in the ", name_, ": ", finding)));
}

void FailureDetector::HandleMessage(int peer, const ControlMessage& message) {
  switch (message.kind) {
    case ControlMessage::kAbort:
      Fail(ReasonOf(message), message.rank);
      return;
    case ControlMessage::kProbe: {
      ControlMessage answer;
      answer.kind = ControlMessage::kAnswer;
      answer.code = MillisecondsOf(waits_->Elsewhere(*this));
      {
        device::MutexLock lock(mutex_);
        // This rank waits no more because of that error; the abort message is on its way, or will
        // be.
        if (has_lost_ || !status_.ok()) return;
        answer.rank = wait_.peer;
        if (activity_) SetText(activity_(), answer);
      }
      control_->Send(peer, answer);
      return;
    }
    case ControlMessage::kLeave:
    case ControlMessage::kAnswer: {
      device::MutexLock lock(mutex_);
      if (message.kind == ControlMessage::kLeave) {
        peers_[peer].has_left = true;
      } else {
        peers_[peer].has_answered = true;
        peers_[peer].answer = message;
      }
      changed_.SignalAll();
      return;
    }
    default:
      return;
  }
}

void FailureDetector::HandleClosed(int peer, const absl::Status& reason) {
  {
    device::MutexLock lock(mutex_);
    if (peers_[peer].has_left) return;
    const Clock::time_point deadline = device::DeadlineAfter(kAbortGrace);
    while (!is_closing_ && status_.ok() && !changed_.WaitWithDeadline(mutex_, deadline)) {
    }
  }
  FailWith(absl::StatusCode::kUnavailable,
           absl::StrCat("rank ", peer, " is gone: ", reason.message()));
}

void FailureDetector::WatchDeadlines() {
  device::MutexLock lock(mutex_);
  while (!is_closing_ && status_.ok()) {
    if (wait_.peer >= 0 && wait_.deadline <= Clock::now()) {
      const Wait wait = wait_;
      lock.Unlock();
      const Verdict verdict = FindCulprit(wait);
      lock.Lock();
      if (wait_.peer < 0 || wait_.number != wait.number) continue;  // it ended meanwhile
      // That group ends first, and whoever lets it wait is named; then this one is ended.
      const absl::Duration more = std::min(verdict.waits_elsewhere, timeout_) + probe_timeout();
      if (verdict.waits_elsewhere > absl::ZeroDuration() &&
          wait_.put_off + more <= kMostPutOff * timeout_ + 2 * probe_timeout()) {
        wait_.put_off += more;
        wait_.deadline = device::DeadlineAfter(more);
        continue;
      }
      lock.Unlock();
      FailWith(absl::StatusCode::kDeadlineExceeded, verdict.message);
      return;
    }
    // A wait that begins meanwhile ends after this, so this thread need not be woken.
    changed_.WaitWithDeadline(mutex_,
                              wait_.peer >= 0 ? wait_.deadline : device::DeadlineAfter(timeout_));
  }
}

// Follows the waits from rank to rank. The message begins with the culprit; what other ranks say is
// at its end, escaped and cut.
FailureDetector::Verdict FailureDetector::FindCulprit(const Wait& wait) {
  const Clock::time_point deadline = device::DeadlineAfter(probe_timeout());
  const std::string waited =
      absl::StrCat(wait.failing, " for ", absl::FormatDuration(timeout_ + wait.put_off));
  std::string chain = absl::StrCat("rank ", rank_, " waits for rank ", wait.peer);
  std::string activities;
  const auto add_activity = [&](absl::string_view activity) {
    if (!activity.empty()) absl::StrAppend(&activities, "; ", activity);
  };
  {
    device::MutexLock lock(mutex_);
    if (activity_) add_activity(activity_());
  }
  std::set<int> visited = {rank_};
  int suspect = wait.peer;
  while (visited.insert(suspect).second) {
    ControlMessage answer;
    const bool answers = Probe(suspect, deadline, answer);
    if (answers) add_activity(TextOf(answer));
    if (!answers || answer.rank < 0) {
      const absl::Duration elsewhere =
          answers ? absl::Milliseconds(answer.code) : absl::ZeroDuration();
      const char* const finding = !answers ? "does not answer"
                                  : elsewhere > absl::ZeroDuration()
                                      ? "is alive, but waits in another group"
                                      : "is alive, but waits for nobody";
      return {device::Printable(absl::StrCat(
                  "rank ", suspect, suspect == wait.peer ? " " + waited : "",
                  suspect == wait.peer ? " and " : " ", finding, " (", chain, activities, ")")),
              elsewhere};
    }
    absl::StrAppend(&chain, ", which waits for rank ", answer.rank);
    suspect = answer.rank;
  }
  return {device::Printable(absl::StrCat(
      "rank ", wait.peer, " ", waited,
      "; the ranks disagree about the order or the size of messages (", chain, activities, ")"))};
}

// Whether the peer answers, and what.
bool FailureDetector::Probe(int peer, Clock::time_point deadline, ControlMessage& answer) {
  ControlMessage message;
  message.kind = ControlMessage::kProbe;
  {
    device::MutexLock lock(mutex_);
    peers_[peer].has_answered = false;
  }
  control_->Send(peer, message);
  device::MutexLock lock(mutex_);
  while (!peers_[peer].has_answered && !is_closing_ && status_.ok() &&
         !changed_.WaitWithDeadline(mutex_, deadline)) {
  }
  answer = peers_[peer].answer;
  return peers_[peer].has_answered;
}

}  // namespace brigade::collectives::internal
