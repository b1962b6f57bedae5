#include "brigade/device/cpu/cpu_stream.h"

#include <chrono>
#include <utility>

#include "brigade/device/address_registry.h"
#include "brigade/device/cpu/cpu_memory.h"
#include "brigade/device/internal/messages.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/spin.h"
#include "brigade/device/threads/worker_thread.h"

namespace brigade::device::internal {
namespace {

// A stream's own sequence of delays, the same on every run.
uint64_t Seed(uint64_t seed, absl::string_view label) {
  uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (const char c : label) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// splitmix64
uint64_t NextRandom(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Whether a context owns it as its device's memory.
bool IsOfDevice(const void* address) {
  const auto region = AddressRegistry::Global().Find(address);
  return region.has_value() && region->owned && region->tier == Tier::kDevice;
}

}  // namespace

absl::Status CpuEvent::Synchronize() {
  const EventRecordRef bound = latest;
  mutex.Unlock();
  return bound->Wait();
}

absl::StatusOr<bool> CpuEvent::Query() {
  if (!latest->finished()) return false;
  BRIGADE_RETURN_IF_ERROR(latest->Wait());
  return true;
}

absl::StatusOr<std::shared_ptr<StreamState>> CpuStream::Create(std::string label, ThreadPool& pool,
                                                               const Slowness& slowness,
                                                               TraceBuffer* trace_buffer) {
  std::shared_ptr<CpuStream> stream(new CpuStream(std::move(label), pool, slowness, trace_buffer));
  stream->worker_ = StartWorkerThread([stream = stream.get()] { stream->Loop(); });
  if (!stream->worker_.joinable()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(stream->label_, ": the system refuses another thread"));
  }
  return std::shared_ptr<StreamState>(std::move(stream));
}

CpuStream::CpuStream(std::string label, ThreadPool& pool, const Slowness& slowness,
                     TraceBuffer* trace_buffer)
    : label_(std::move(label)),
      pool_(pool),
      slowness_(slowness),
      trace_buffer_(trace_buffer),
      random_state_(Seed(slowness.delay.seed, label_)) {}

CpuStream::~CpuStream() { Close(); }

void CpuStream::NotifyWorker() {
  enqueued_.fetch_add(1, std::memory_order_relaxed);
  if (sleeping_) arrived_.Signal();
}

void CpuStream::Enqueue(absl::string_view operation, int64_t bytes, const TaskType& type,
                        void* work, const void* list, size_t items) {
  MutexLock lock(mutex_);
  queue_.PushWork(operation, bytes, type, work, list, items);
  NotifyWorker();
}

absl::Status CpuStream::Launch(absl::string_view operation, int64_t,
                               absl::FunctionRef<absl::Status(void*)>) {
  return absl::FailedPreconditionError(absl::StrCat(
      "\"", operation, "\": ", label_, " is a CPU stream; Launch needs a CUDA stream"));
}

absl::Status CpuStream::Copy(void* destination, const void* source, int64_t bytes) {
  const double link = slowness_.link_bytes_per_second;
  const bool crosses = link > 0 && IsOfDevice(destination) != IsOfDevice(source);
  const std::chrono::duration<double> least(crosses ? static_cast<double>(bytes) / link : 0);
  auto work = [destination, source, bytes, least](ThreadPool& pool) {
    std::chrono::steady_clock::time_point begin;
    if (least.count() > 0) begin = std::chrono::steady_clock::now();
    CopyMemory(destination, source, bytes, pool);
    if (least.count() > 0) std::this_thread::sleep_until(begin + least);
    return absl::OkStatus();
  };
  Enqueue("copy", 2 * bytes, kTask<decltype(work)>, &work, nullptr, 0);
  return absl::OkStatus();
}

absl::Status CpuStream::FillBytes(void* destination, uint8_t value, int64_t bytes) {
  auto work = [destination, value, bytes](ThreadPool& pool) {
    FillMemory(destination, value, bytes, pool);
    return absl::OkStatus();
  };
  Enqueue("fill_bytes", bytes, kTask<decltype(work)>, &work, nullptr, 0);
  return absl::OkStatus();
}

absl::Status CpuStream::Record(EventState& event) {
  EventRecordRef record = EventRecordRef::Create();
  static_cast<CpuEvent&>(event).latest = record;
  MutexLock lock(mutex_);
  queue_.PushEvent(Task::Kind::kRecord, "", std::move(record));
  NotifyWorker();
  return absl::OkStatus();
}

absl::Status CpuStream::Wait(EventState& event, absl::string_view event_name) {
  const auto ordinal = static_cast<size_t>(event.device.ordinal);
  if (ordinal >= arrivals_.size()) arrivals_.resize(ordinal + 1);
  BRIGADE_ASSIGN_OR_RETURN(EventRecordRef record, event.Follow(arrivals_[ordinal]));
  MutexLock lock(mutex_);
  queue_.PushEvent(Task::Kind::kWait, event_name, std::move(record));
  NotifyWorker();
  return absl::OkStatus();
}

bool CpuStream::Drain() {
  const int64_t target = enqueued_.load(std::memory_order_relaxed);
  const auto done = [&] { return ended_.load(std::memory_order_acquire) >= target; };
  MutexLock lock(mutex_);
  if (done()) return false;
  lock.Unlock();
  if (SpinUntil(done)) return true;
  lock.Lock();
  ++draining_;
  while (!done()) ended_some_.Wait(mutex_);
  --draining_;
  return true;
}

void CpuStream::Close() {
  if (!worker_.joinable()) return;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    arrived_.Signal();
  }
  worker_.join();
}

absl::Status CpuStream::Execute(Task& task) {
  switch (task.kind) {
    case Task::Kind::kWork: {
      absl::Status status;
      if (error_.ok()) {
        const TraceScope trace(trace_buffer_, TracedOperation::Kind::kWork, task.name, task.bytes);
        status = task.type->run(task.work, task.list, task.items, pool_);
      }
      task.type->destroy(task.work);
      return status.ok() ? status : FailedOperation(task.name, label_, status);
    }
    case Task::Kind::kWait: {
      // Also on a failed stream: its later records must still mean that everything before is over.
      const TraceScope trace(trace_buffer_, TracedOperation::Kind::kWait, task.name);
      const absl::Status carried = task.record->Wait();
      return carried.ok() ? carried : ArrivedThrough(task.name, label_, carried);
    }
    case Task::Kind::kRecord:
      break;
  }
  return absl::OkStatus();
}

void CpuStream::Loop() {
  MutexLock lock(mutex_);
  for (;;) {
    if (queue_.empty()) {
      if (closing_) return;
      const int64_t seen = enqueued_.load(std::memory_order_relaxed);
      lock.Unlock();
      SpinUntil([&] { return enqueued_.load(std::memory_order_relaxed) != seen; });
      lock.Lock();
      sleeping_ = true;
      while (queue_.empty() && !closing_) arrived_.Wait(mutex_);
      sleeping_ = false;
      continue;
    }
    Task& task = queue_.front();
    lock.Unlock();
    SleepRandomly();
    error_.Keep(Execute(task));
    lock.Lock();
    // Under the lock, so that a thread which learns from the event that the work is over finds it
    // over in this stream too.
    if (task.kind == Task::Kind::kRecord) task.record->Finish(error_.Get());
    queue_.PopFront();
    ended_.fetch_add(1, std::memory_order_release);
    if (draining_ > 0) ended_some_.SignalAll();
  }
}

void CpuStream::SleepRandomly() {
  const int most = slowness_.delay.max_delay_us;
  if (most <= 0) return;
  const auto range = static_cast<uint64_t>(most) + 1;
  std::this_thread::sleep_for(std::chrono::microseconds(NextRandom(random_state_) % range));
}

}  // namespace brigade::device::internal
