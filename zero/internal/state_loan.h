#ifndef BRIGADE_ZERO_INTERNAL_STATE_LOAN_H_
#define BRIGADE_ZERO_INTERNAL_STATE_LOAN_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/zero/internal/step_streams.h"

namespace brigade::zero::internal {

// The state between two updates, lent to one who copies it beside the passes that follow:
// ZeroOptimizer::LendState.
class StateLoan {
 public:
  static absl::StatusOr<std::unique_ptr<StateLoan>> Create(StepStreams& streams);

  absl::Status Lend(device::Stream& reader) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Return() ABSL_LOCKS_EXCLUDED(mutex_);
  bool is_lent() const ABSL_LOCKS_EXCLUDED(mutex_);

  // What is enqueued on the communication stream from now on may change the state: on the host
  // waits for Return, and on the stream for what the reader had enqueued by then.
  absl::Status AwaitReader() ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing that was read by the loans so far matters any more, their errors neither, also of one
  // that is still to be returned. Waits.
  void Forget() ABSL_LOCKS_EXCLUDED(mutex_);

  // What the host has waited.
  int64_t wait_ns() const { return wait_ns_.load(std::memory_order_relaxed); }

 private:
  explicit StateLoan(StepStreams& streams) : streams_(streams) {}

  // Waits for a returned reader, and drops its error.
  void DropRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  StepStreams& streams_;
  // On the communication stream: the state is that of the last update. On the reader's: it is
  // copied.
  std::unique_ptr<device::Event> at_rest_, staged_;
  std::atomic<int64_t> wait_ns_ = 0;

  mutable device::Mutex mutex_;
  device::CondVar returned_;
  // Null: it is not lent.
  device::Stream* reader_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // A reader has returned it, and the communication stream has not waited for `staged_` yet.
  bool was_read_ ABSL_GUARDED_BY(mutex_) = false;
  // Of a state that was lent when all was forgotten: what its reader brings is dropped.
  bool is_forgotten_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_STATE_LOAN_H_
