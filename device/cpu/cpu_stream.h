#ifndef BRIGADE_DEVICE_CPU_CPU_STREAM_H_
#define BRIGADE_DEVICE_CPU_CPU_STREAM_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "brigade/device/context_options.h"
#include "brigade/device/cpu/task_queue.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/internal/first_error.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/device/tracing/trace_buffer.h"

namespace brigade::device::internal {

// An event of the CPU: a reference to its latest record, which each wait copies.
class CpuEvent final : public EventState {
 public:
  absl::Status Synchronize(std::unique_lock<std::mutex>& lock) override;
  absl::StatusOr<bool> Query() override;

  // Guarded by mutex.
  EventRecordRef latest;
};

// A stream of the CPU: a worker thread and its queue.
class CpuStream final : public StreamState {
 public:
  // ResourceExhausted if the system refuses the thread.
  static absl::StatusOr<std::shared_ptr<StreamState>> Create(std::string label, ThreadPool& pool,
                                                             RandomDelay delay,
                                                             TraceBuffer* trace_buffer);
  ~CpuStream() override;

  void Enqueue(absl::string_view operation, const TaskType& type, void* work, const void* list,
               size_t items) override;
  absl::Status Launch(absl::string_view operation,
                      absl::FunctionRef<absl::Status(void*)> launch) override;
  absl::Status Copy(void* destination, const void* source, int64_t bytes) override;
  absl::Status FillBytes(void* destination, uint8_t value, int64_t bytes) override;
  absl::Status Record(EventState& event) override;
  absl::Status Wait(EventState& event, absl::string_view event_name) override;
  bool Drain() override;
  absl::Status error() const override { return error_.Get(); }
  void ClearError() override { error_.Clear(); }
  void Close() override;

 private:
  CpuStream(std::string label, ThreadPool& pool, RandomDelay delay, TraceBuffer* trace_buffer);

  void Loop();
  absl::Status Execute(Task& task);
  // Counts a task that was pushed and wakes the worker. The caller holds mutex_.
  void NotifyWorker();
  void SleepRandomly();

  const std::string label_;
  ThreadPool& pool_;
  const RandomDelay delay_;
  // Null: not traced.
  TraceBuffer* const trace_buffer_;
  uint64_t random_state_;

  FirstError error_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable ended_some_;
  TaskQueue queue_;
  bool sleeping_ = false;
  bool closing_ = false;
  int draining_ = 0;
  // Written under mutex_; read without it only to decide how long to spin.
  std::atomic<int64_t> enqueued_{0};
  std::atomic<int64_t> ended_{0};

  std::thread worker_;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CPU_CPU_STREAM_H_
