#ifndef BRIGADE_DEVICE_CPU_CPU_STREAM_H_
#define BRIGADE_DEVICE_CPU_CPU_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "brigade/device/context_options.h"
#include "brigade/device/cpu/task_queue.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/internal/first_error.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/device/tracing/trace_buffer.h"

namespace brigade::device::internal {

// An event of the CPU: a reference to its latest record, which each wait copies.
class CpuEvent final : public EventState {
 public:
  CpuEvent() : EventState(Cpu()) {}

  absl::Status Synchronize() ABSL_UNLOCK_FUNCTION(mutex) override;
  absl::StatusOr<bool> Query() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override;
  absl::StatusOr<EventRecordRef> Follow(std::unique_ptr<Arrivals>&)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override {
    return latest;
  }

  EventRecordRef latest ABSL_GUARDED_BY(mutex);
};

// A stream of the CPU: a worker thread and its queue.
class CpuStream final : public StreamState {
 public:
  // What a stream waits for, as ContextOptions says.
  struct Slowness {
    RandomDelay delay;
    double link_bytes_per_second = 0;
  };

  // ResourceExhausted if the system refuses the thread.
  static absl::StatusOr<std::shared_ptr<StreamState>> Create(std::string label, ThreadPool& pool,
                                                             const Slowness& slowness,
                                                             TraceBuffer* trace_buffer);
  ~CpuStream() override;

  void Enqueue(absl::string_view operation, int64_t bytes, const TaskType& type, void* work,
               const void* list, size_t items) override;
  absl::Status Launch(absl::string_view operation, int64_t bytes,
                      absl::FunctionRef<absl::Status(void*)> launch) override;
  absl::Status Copy(void* destination, const void* source, int64_t bytes) override;
  absl::Status FillBytes(void* destination, uint8_t value, int64_t bytes) override;
  absl::Status Record(EventState& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(event.mutex) override;
  absl::Status Wait(EventState& event, absl::string_view event_name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(event.mutex) override;
  bool Drain() override;
  absl::Status error() const override { return error_.Get(); }
  void ClearError() override { error_.Clear(); }
  void Close() override;

 private:
  CpuStream(std::string label, ThreadPool& pool, const Slowness& slowness,
            TraceBuffer* trace_buffer);

  void Loop();
  absl::Status Execute(Task& task);
  // Counts a task that was pushed and wakes the worker.
  void NotifyWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SleepRandomly();

  const std::string label_;
  ThreadPool& pool_;
  const Slowness slowness_;
  // Null: not traced.
  TraceBuffer* const trace_buffer_;
  uint64_t random_state_;

  FirstError error_;
  // By the ordinals of other devices whose events this stream has waited for. Of Wait, of which
  // there is one call at a time.
  std::vector<std::unique_ptr<Arrivals>> arrivals_;

  Mutex mutex_;
  CondVar arrived_;
  CondVar ended_some_;
  TaskQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool sleeping_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  int draining_ ABSL_GUARDED_BY(mutex_) = 0;
  // Written under mutex_; read without it only to decide how long to spin.
  std::atomic<int64_t> enqueued_{0};
  std::atomic<int64_t> ended_{0};

  std::thread worker_;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CPU_CPU_STREAM_H_
