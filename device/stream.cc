#include "brigade/device/stream.h"

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/address_registry.h"
#include "brigade/device/event.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/internal/context_state.h"
#include "brigade/device/internal/messages.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/worker_thread.h"

namespace brigade::device {
namespace {

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

absl::Status CheckRange(absl::string_view operation, absl::string_view argument, const void* data,
                        int64_t bytes, Device device) {
  if (data == nullptr && bytes > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": ", argument, " is null, with ", bytes, " bytes to go"));
  }
  // The GPU reaches host memory by itself; the CPU does not reach the GPU's.
  if (device.kind != DeviceKind::kCpu || bytes == 0) return absl::OkStatus();
  const std::optional<Device> home = AddressRegistry::Global().DeviceOf(data);
  if (!home.has_value() || home->kind == DeviceKind::kCpu) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", argument, " is in memory of ",
                                                 home->ToString(), ", but the stream is on ",
                                                 device.ToString()));
}

int64_t BytesOf(const Operation& operation) {
  // Unsigned: nobody has checked that the sum fits.
  uint64_t bytes = 0;
  for (const Access& access : operation.accesses) bytes += static_cast<uint64_t>(access.bytes);
  return static_cast<int64_t>(bytes);
}

}  // namespace

Stream::Stream(std::shared_ptr<internal::ContextState> context,
               std::shared_ptr<internal::StreamState> state, std::string name, bool owned,
               RaceChecker::ActorId actor)
    : context_(std::move(context)),
      state_(std::move(state)),
      name_(std::move(name)),
      device_(context_->device),
      id_(NextId()),
      owned_(owned),
      checker_(context_->checker),
      actor_(actor) {
  context_->AddStream(state_, actor_);
}

Stream::~Stream() {
  if (owned_) {
    VectorClock over;
    if (checker_ != nullptr) over = checker_->Now(actor_);
    if (state_->Drain()) context_->CountHostWait();
    context_->RemoveStream(state_.get());
    state_->Close();
    if (checker_ != nullptr) {
      checker_->HostAcquire(over);
      checker_->RemoveStream(actor_);
    }
  } else {
    context_->RemoveStream(state_.get());
  }
}

absl::Status Stream::Admit(const Operation& operation) {
  absl::Status error = state_->error();
  if (!error.ok() || checker_ == nullptr || state_->capture_id() != 0) return error;
  race_.Keep(checker_->Enqueue(actor_, operation));
  return absl::OkStatus();
}

absl::Status Stream::Submit(const Operation& operation, const internal::TaskType& type, void* work,
                            const void* list, size_t items) {
  if (device_.kind != DeviceKind::kCpu) {
    return absl::FailedPreconditionError(absl::StrCat("\"", operation.name, "\": stream \"", name_,
                                                      "\" is on ", device_.ToString(),
                                                      "; Enqueue needs a CPU stream, use Launch"));
  }
  MutexLock lock(submit_mutex_);
  absl::Status admitted = Admit(operation);
  if (admitted.ok()) {
    state_->Enqueue(operation.name, BytesOf(operation), type, work, list, items);
  }
  return admitted;
}

absl::Status Stream::Launch(const Operation& operation,
                            absl::FunctionRef<absl::Status(void* cuda_stream)> launch) {
  if (device_.kind != DeviceKind::kCuda) {
    return absl::FailedPreconditionError(absl::StrCat("\"", operation.name, "\": stream \"", name_,
                                                      "\" is on ", device_.ToString(),
                                                      "; Launch needs a CUDA stream, use Enqueue"));
  }
  MutexLock lock(submit_mutex_);
  absl::Status admitted = Admit(operation);
  return admitted.ok() ? state_->Launch(operation.name, BytesOf(operation), launch) : admitted;
}

absl::Status Stream::Copy(void* destination, const void* source, int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("copy: ", bytes, " bytes"));
  for (const absl::Status& checked :
       {CheckRange("copy", "destination", destination, bytes, device_),
        CheckRange("copy", "source", source, bytes, device_)}) {
    if (!checked.ok()) return checked;
  }
  const auto to = reinterpret_cast<uintptr_t>(destination);
  const auto from = reinterpret_cast<uintptr_t>(source);
  if ((to > from ? to - from : from - to) < static_cast<uintptr_t>(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("copy: source and destination overlap: ", bytes,
                                                   " bytes, ", to > from ? to - from : from - to,
                                                   " apart"));
  }
  MutexLock lock(submit_mutex_);
  absl::Status admitted = Admit({"copy", {Reads(source, bytes), Writes(destination, bytes)}});
  if (!admitted.ok() || bytes == 0) return admitted;
  return state_->Copy(destination, source, bytes);
}

absl::Status Stream::FillBytes(void* destination, uint8_t value, int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("fill_bytes: ", bytes, " bytes"));
  BRIGADE_RETURN_IF_ERROR(CheckRange("fill_bytes", "destination", destination, bytes, device_));
  MutexLock lock(submit_mutex_);
  absl::Status admitted = Admit({"fill_bytes", {Writes(destination, bytes)}});
  if (!admitted.ok() || bytes == 0) return admitted;
  return state_->FillBytes(destination, value, bytes);
}

uint64_t Stream::capture_id() const { return state_->capture_id(); }

absl::Status Stream::Refuse(absl::string_view call, const Event& event) const {
  return absl::InvalidArgumentError(absl::StrCat(call, ": event \"", event.name(), "\" is on ",
                                                 event.device().ToString(), ", but stream \"",
                                                 name_, "\" is on ", device_.ToString()));
}

absl::Status Stream::Record(Event& event) {
  // Ordinals of the CPU are one device.
  const bool is_elsewhere = event.device() != device_ && device_.kind == DeviceKind::kCuda;
  if (is_elsewhere || event.device().kind != device_.kind) return Refuse("Record", event);
  MutexLock lock(submit_mutex_);
  MutexLock event_lock(event.state_->mutex);
  absl::Status recorded = state_->Record(*event.state_);
  if (!recorded.ok()) return recorded;
  event.state_->recorded = true;
  event.state_->checker = checker_;
  if (checker_ != nullptr) checker_->Record(actor_, event.state_->clock);
  return recorded;
}

absl::Status Stream::Wait(Event& event) {
  MutexLock lock(submit_mutex_);
  MutexLock event_lock(event.state_->mutex);
  if (!event.state_->recorded) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stream \"", name_, "\" waits for event \"", event.name(), "\", which was never recorded"));
  }
  if (state_->WaitsOnHost(*event.state_) && state_->capture_id() == 0) {
    if (internal::on_worker_thread) return MustNotWait();
    context_->CountHostWait();
  }
  absl::Status waited = state_->Wait(*event.state_, event.name());
  // The clock of another checker means nothing here.
  if (waited.ok() && checker_ != nullptr && checker_ == event.state_->checker &&
      state_->capture_id() == 0) {
    checker_->Wait(actor_, event.state_->clock);
  }
  return waited;
}

absl::Status Stream::MustNotWait() const {
  return absl::FailedPreconditionError(
      absl::StrCat("stream \"", name_, "\": enqueued work must not wait for a device on the host"));
}

absl::Status Stream::WaitOnHost() {
  if (internal::on_worker_thread) return MustNotWait();
  if (state_->capture_id() != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stream \"", name_, "\" is captured into a CUDA graph: nothing runs that could end"));
  }
  VectorClock over;
  if (checker_ != nullptr) {
    MutexLock lock(submit_mutex_);
    over = checker_->Now(actor_);
  }
  context_->CountHostWait();
  state_->Drain();
  if (checker_ != nullptr) checker_->HostAcquire(over);
  return absl::OkStatus();
}

absl::Status Stream::Synchronize() {
  absl::Status waited = WaitOnHost();
  return waited.ok() ? status() : waited;
}

absl::Status Stream::Reset() {
  BRIGADE_RETURN_IF_ERROR(WaitOnHost());
  MutexLock lock(submit_mutex_);
  race_.Clear();
  state_->ClearError();
  return absl::OkStatus();
}

absl::Status Stream::status() const {
  absl::Status error = state_->error();
  return error.ok() ? race_.Get() : error;
}

}  // namespace brigade::device
