#include "brigade/device/event.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/internal/context_state.h"
#include "brigade/device/internal/messages.h"
#include "brigade/device/threads/worker_thread.h"

namespace brigade::device {
namespace {

absl::Status NeverRecorded(absl::string_view name) {
  return absl::FailedPreconditionError(absl::StrCat("event \"", name, "\" was never recorded"));
}

}  // namespace

Event::Event(std::shared_ptr<internal::ContextState> context,
             std::unique_ptr<internal::EventState> state, std::string name)
    : context_(std::move(context)),
      state_(std::move(state)),
      name_(std::move(name)),
      device_(context_->device) {}

Event::~Event() = default;

absl::Status Event::Synchronize() {
  if (internal::on_worker_thread) {
    return absl::FailedPreconditionError(absl::StrCat(
        "event \"", name_, "\": enqueued work must not wait for a device on the host"));
  }
  internal::EventState& state = *state_;
  state.mutex.Lock();
  if (!state.recorded) {
    state.mutex.Unlock();
    return NeverRecorded(name_);
  }
  RaceChecker* const checker = state.checker;
  VectorClock clock;
  if (checker != nullptr) clock = state.clock;
  context_->CountHostWait();
  const absl::Status carried = state.Synchronize();
  if (checker != nullptr) checker->HostAcquire(clock);
  return carried.ok() ? carried : internal::ArrivedThrough(name_, "the host", carried);
}

absl::StatusOr<bool> Event::Peek() {
  MutexLock lock(state_->mutex);
  if (!state_->recorded) return NeverRecorded(name_);
  return state_->Query();
}

absl::StatusOr<bool> Event::Query() {
  MutexLock lock(state_->mutex);
  if (!state_->recorded) return NeverRecorded(name_);
  absl::StatusOr<bool> reached = state_->Query();
  if (reached.ok() && !*reached) return reached;
  if (state_->checker != nullptr) state_->checker->HostAcquire(state_->clock);
  if (!reached.ok()) return internal::ArrivedThrough(name_, "the host", reached.status());
  return reached;
}

}  // namespace brigade::device
