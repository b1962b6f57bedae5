#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_FAILURE_DETECTOR_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_FAILURE_DETECTOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "brigade/collectives/engines/gloo/control_channel.h"
#include "brigade/collectives/engines/gloo/rank_waits.h"
#include "brigade/device/threads/mutex.h"
#include "gloo/transport/context.h"

namespace brigade::collectives::internal {

// What ends a rank's waits before their time: a peer that is gone or silent, or an abort. It keeps
// the first final error, tells the other ranks, and finds the rank where the trouble began.
//
// Threads      Its own for deadlines, and those of its control channel. BeginWait, EndWait and
//              ReportClosed from the thread that uses the transport, ReportRefused from Gloo's, the
//              rest from any.
class FailureDetector {
 public:
  // `name`: GlooOptions'. `context` is null in a group of one. `end_waits` ends the waits of this
  // rank's payload: called from any thread, with a lock held, for the last time before HasFailed()
  // is true. `waits` has the waits of all groups of this rank, this one's too until its end.
  FailureDetector(int rank, int size, std::string name, absl::Duration timeout,
                  ::gloo::transport::Context* context, std::shared_ptr<RankWaits> waits,
                  std::function<void()> end_waits);

  // Tells the others that this rank has left, if there is no final error.
  ~FailureDetector();

  // What this rank says about itself in errors at a deadline; see Transport::SetActivity.
  void SetActivity(std::function<std::string()> activity);

  // From here to EndWait this rank waits for `peer`, at most the timeout, or up to three of them
  // while the rank that is to blame waits in another group. `failing` says what the peer does not
  // do: "sent nothing".
  void BeginWait(int peer, const char* failing);
  void EndWait();

  // How long this wait may still last until the group ends with an error, or puts its deadline off;
  // 0 if this rank does not wait.
  absl::Duration WaitLeft() const;

  // The connection with `peer` is closed. There is a final error when it returns.
  void ReportClosed(int peer, const absl::Status& reason);

  // Gloo has refused to post an operation with `peer`: ends the waits, and never waits itself. The
  // next HasFailed makes it the final error.
  void ReportRefused(int peer, const absl::Status& reason);

  // Makes `reason` the final error of all ranks, unless there is one.
  void Abort(const absl::Status& reason);

  // Whether there is a final error. From the thread that uses the transport.
  bool HasFailed();

  absl::Status status() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    bool has_left = false;
    bool has_answered = false;
    ControlMessage answer;
  };

  // What this rank waits for.
  struct Wait {
    int peer = -1;
    // Tells one wait from the next.
    uint64_t number = 0;
    const char* failing = "";
    Clock::time_point deadline;
    // By how much the deadline was put off, because the rank to blame waits in another group.
    absl::Duration put_off = absl::ZeroDuration();
  };

  // What a rank finds at its deadline.
  struct Verdict {
    std::string message;
    // How long the rank that the message names may still wait in another group.
    absl::Duration waits_elsewhere = absl::ZeroDuration();
  };

  void Fail(const absl::Status& reason, int reporter);
  // Ends the group with what this rank has found out about one of its ranks.
  void FailWith(absl::StatusCode code, absl::string_view finding);
  absl::Status WhyRefused() const;

  // From the threads of control_.
  void HandleMessage(int peer, const ControlMessage& message);
  void HandleClosed(int peer, const absl::Status& reason);

  // From watchdog_.
  void WatchDeadlines();
  Verdict FindCulprit(const Wait& wait);
  absl::Duration probe_timeout() const;
  bool Probe(int peer, Clock::time_point deadline, ControlMessage& answer);

  const int rank_;
  const int size_;
  const std::string name_;
  const absl::Duration timeout_;
  const std::shared_ptr<RankWaits> waits_;
  const std::function<void()> end_waits_;

  mutable device::Mutex mutex_;
  device::CondVar changed_;
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mutex_);
  Wait wait_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::function<std::string()> activity_ ABSL_GUARDED_BY(mutex_);
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  // A peer, of which a final error is about to be made.
  bool has_lost_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_refused_ ABSL_GUARDED_BY(mutex_);

  std::atomic<bool> failed_ = false;
  // The first peer to which nothing could be posted.
  std::atomic<int> refused_ = -1;

  // Null in a group of one.
  std::unique_ptr<ControlChannel> control_;
  std::thread watchdog_;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_FAILURE_DETECTOR_H_
