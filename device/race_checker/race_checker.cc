#include "brigade/device/race_checker/race_checker.h"

#include "brigade/device/race_checker/access_history.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device {

struct RaceChecker::Impl {
  Mutex mutex;
  internal::AccessHistory history ABSL_GUARDED_BY(mutex);
};

RaceChecker::RaceChecker() : impl_(std::make_unique<Impl>()) {}
RaceChecker::~RaceChecker() = default;

RaceChecker& RaceChecker::Default() {
  // Never destroyed: streams may outlive main.
  static RaceChecker* const checker = new RaceChecker;
  return *checker;
}

std::vector<Race> RaceChecker::reports() const {
  MutexLock lock(impl_->mutex);
  return impl_->history.reports();
}

int64_t RaceChecker::reports_dropped() const {
  MutexLock lock(impl_->mutex);
  return impl_->history.reports_dropped();
}

void RaceChecker::ClearReports() {
  MutexLock lock(impl_->mutex);
  impl_->history.ClearReports();
}

VectorClock RaceChecker::HostRelease() {
  MutexLock lock(impl_->mutex);
  return impl_->history.clock(impl_->history.ThisThread());
}

void RaceChecker::HostAcquire(const VectorClock& clock) {
  MutexLock lock(impl_->mutex);
  impl_->history.HostAcquire(clock);
}

absl::Status RaceChecker::HostRead(absl::string_view operation, const void* data, int64_t bytes) {
  MutexLock lock(impl_->mutex);
  return impl_->history.CheckAccesses(impl_->history.ThisThread(),
                                      {operation, {Reads(data, bytes)}});
}

absl::Status RaceChecker::HostWrite(absl::string_view operation, void* data, int64_t bytes) {
  MutexLock lock(impl_->mutex);
  return impl_->history.CheckAccesses(impl_->history.ThisThread(),
                                      {operation, {Writes(data, bytes)}});
}

int64_t RaceChecker::intervals() const {
  MutexLock lock(impl_->mutex);
  return static_cast<int64_t>(impl_->history.intervals());
}

int64_t RaceChecker::actors() const {
  MutexLock lock(impl_->mutex);
  return static_cast<int64_t>(impl_->history.actors());
}

RaceChecker::ActorId RaceChecker::AddStream(absl::string_view stream, absl::string_view context) {
  MutexLock lock(impl_->mutex);
  return impl_->history.AddStream(stream, context);
}

RaceChecker::ActorId RaceChecker::AddBorrowedStream(absl::string_view stream,
                                                    absl::string_view context, int device,
                                                    const void* native) {
  MutexLock lock(impl_->mutex);
  return impl_->history.AddBorrowedStream(stream, context, {device, native});
}

void RaceChecker::RemoveStream(ActorId stream) {
  MutexLock lock(impl_->mutex);
  impl_->history.EndStream(stream);
}

absl::Status RaceChecker::Enqueue(ActorId stream, const Operation& operation) {
  MutexLock lock(impl_->mutex);
  impl_->history.JoinThisThread(stream);
  impl_->history.TellOfUndeclared(stream, operation);
  return impl_->history.CheckAccesses(stream, operation);
}

void RaceChecker::Record(ActorId stream, VectorClock& event) {
  MutexLock lock(impl_->mutex);
  impl_->history.JoinThisThread(stream);
  event = impl_->history.clock(stream);
}

void RaceChecker::Wait(ActorId stream, const VectorClock& event) {
  MutexLock lock(impl_->mutex);
  impl_->history.JoinThisThread(stream);
  impl_->history.clock(stream).Join(event);
}

VectorClock RaceChecker::Now(ActorId stream) const {
  MutexLock lock(impl_->mutex);
  return impl_->history.clock(stream);
}

void RaceChecker::AddMemory(const void* data, int64_t bytes, absl::string_view name, bool owned) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  MutexLock lock(impl_->mutex);
  impl_->history.AddMemory(begin, begin + static_cast<uintptr_t>(bytes), name, owned);
}

void RaceChecker::RemoveMemory(const void* data, int64_t bytes, bool owned) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  MutexLock lock(impl_->mutex);
  impl_->history.RemoveMemory(begin, begin + static_cast<uintptr_t>(bytes), owned);
}

}  // namespace brigade::device
