#include "brigade/zero/internal/state_loan.h"

#include <chrono>
#include <utility>

#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"

namespace brigade::zero::internal {

absl::StatusOr<std::unique_ptr<StateLoan>> StateLoan::Create(StepStreams& streams) {
  std::unique_ptr<StateLoan> loan(new StateLoan(streams));
  BRIGADE_ASSIGN_OR_RETURN(loan->at_rest_, streams.context().CreateEvent("state at rest"));
  BRIGADE_ASSIGN_OR_RETURN(loan->staged_, streams.context().CreateEvent("state staged"));
  return loan;
}

absl::Status StateLoan::Lend(device::Stream& reader) {
  const device::MutexLock lock(mutex_);
  if (reader_ != nullptr) return absl::FailedPreconditionError("LendState: the state is lent");
  if (is_forgotten_) DropRead();
  BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*at_rest_));
  BRIGADE_RETURN_IF_ERROR(reader.Wait(*at_rest_));
  // So that what this reader records covers an earlier one for which no update has waited.
  if (was_read_) BRIGADE_RETURN_IF_ERROR(reader.Wait(*staged_));
  reader_ = &reader;
  return absl::OkStatus();
}

absl::Status StateLoan::Return() {
  const device::MutexLock lock(mutex_);
  if (reader_ == nullptr) {
    return absl::FailedPreconditionError("ReturnState: the state is not lent");
  }
  // It is back also after an error, which is the device's, so that Step does not wait for ever.
  was_read_ = true;
  returned_.SignalAll();
  return std::exchange(reader_, nullptr)->Record(*staged_);
}

bool StateLoan::is_lent() const {
  const device::MutexLock lock(mutex_);
  return reader_ != nullptr;
}

absl::Status StateLoan::AwaitReader() {
  device::MutexLock lock(mutex_);
  if (reader_ != nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    while (reader_ != nullptr) returned_.Wait(mutex_);
    const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - begin;
    wait_ns_.fetch_add(waited.count(), std::memory_order_relaxed);
  }
  if (is_forgotten_) DropRead();
  if (!was_read_) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kStateStaged, *staged_, streams_.comm()));
  was_read_ = false;
  return absl::OkStatus();
}

void StateLoan::Forget() {
  const device::MutexLock lock(mutex_);
  DropRead();
  is_forgotten_ = reader_ != nullptr;
}

void StateLoan::DropRead() {
  if (std::exchange(was_read_, false)) staged_->Synchronize().IgnoreError();
  is_forgotten_ = false;
}

}  // namespace brigade::zero::internal
