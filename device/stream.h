#ifndef BRIGADE_DEVICE_STREAM_H_
#define BRIGADE_DEVICE_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/device.h"
#include "brigade/device/internal/first_error.h"
#include "brigade/device/internal/task.h"
#include "brigade/device/operation.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/thread_pool.h"

namespace brigade::device {

class Event;

namespace internal {
class ContextState;
class StreamState;
}  // namespace internal

// Runs work in order, concurrently with the host and with other streams. Created by
// Context::CreateStream or BorrowStream.
//
// Order        docs/device.md, rules 1 to 6.
// Errors       OK means enqueued. InvalidArgument for bad arguments, with nothing enqueued. Once
//              the stream has failed, its first error, until Reset; docs/device.md, rules 7 to 11.
// Allocation   None in steady state.
// Lifetime     Destruction finishes what is queued. May outlive its context.
// Threads      Safe from any thread; calls at the same time take effect in some order.
class Stream {
 public:
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }
  absl::string_view name() const { return name_; }

  // No other stream of this process ever has it.
  uint64_t id() const { return id_; }

  // CUDA: the capture into a graph that the stream is in now, by a number that no other capture of
  // this process has; 0: none.
  uint64_t capture_id() const;

  // Whether the declared accesses are checked. If not, a caller with a long list of them may pass
  // none.
  bool checks_races() const { return checker_ != nullptr; }

  // CPU: work(ThreadPool&) -> absl::Status runs on the stream's worker. `work` is moved into the
  // queue and destroyed after it ran or was skipped. FailedPrecondition on a CUDA stream.
  template <typename F>
  absl::Status Enqueue(const Operation& operation, F work) {
    static_assert(std::is_invocable_r_v<absl::Status, F&, ThreadPool&>,
                  "work must be callable as absl::Status(ThreadPool&)");
    return Submit(operation, internal::kTask<F>, &work, nullptr, 0);
  }

  // The same with a list: work(absl::Span<const T>, ThreadPool&) gets a copy of `list` that lives
  // in the queue.
  template <typename T, typename F>
  absl::Status Enqueue(const Operation& operation, absl::Span<const T> list, F work) {
    static_assert(std::is_trivially_copyable_v<T>, "the list is copied byte by byte");
    static_assert(std::is_invocable_r_v<absl::Status, F&, absl::Span<const T>, ThreadPool&>,
                  "work must be callable as absl::Status(absl::Span<const T>, ThreadPool&)");
    return Submit(operation, internal::kListTask<T, F>, &work, list.data(), list.size());
  }

  // CUDA: calls launch(cudaStream_t) at once, in this thread; it must not use this Stream. An error
  // from it fails the stream and is returned. FailedPrecondition on a CPU stream.
  absl::Status Launch(const Operation& operation,
                      absl::FunctionRef<absl::Status(void* cuda_stream)> launch);

  // Copies between any memory that the device reaches; declared to the race checker.
  // InvalidArgument if `bytes` is negative, an address is null with bytes to copy, the two overlap,
  // or (CPU) one of them is known to be in GPU memory.
  absl::Status Copy(void* destination, const void* source, int64_t bytes);
  absl::Status FillBytes(void* destination, uint8_t value, int64_t bytes);

  // Marks this place in the queue, also if the stream has failed. InvalidArgument if the event is
  // on another device.
  absl::Status Record(Event& event);

  // What is enqueued from now on runs after the event's latest record, whatever the kinds of the
  // two devices are. FailedPrecondition if there is none, or if a CUDA graph captures the stream
  // and did not capture the record, or the other way round for a stream of the CPU.
  absl::Status Wait(Event& event);

  // Blocks this thread until all that is enqueued has ended; returns the first error of what ran,
  // or of the race checker. A host wait. FailedPrecondition while a CUDA graph captures the stream.
  absl::Status Synchronize();

  // Waits likewise, then clears the error.
  absl::Status Reset();

  // The first error known by now. Never waits, not even for another thread's call that blocks.
  absl::Status status() const;

 private:
  friend class Context;

  Stream(std::shared_ptr<internal::ContextState> context,
         std::shared_ptr<internal::StreamState> state, std::string name, bool owned,
         RaceChecker::ActorId actor);

  absl::Status Submit(const Operation& operation, const internal::TaskType& type, void* work,
                      const void* list, size_t items);
  // Tells the race checker of the operation, or returns the error of a failed stream.
  absl::Status Admit(const Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(submit_mutex_);
  absl::Status Refuse(absl::string_view call, const Event& event) const;
  absl::Status MustNotWait() const;
  absl::Status WaitOnHost();

  std::shared_ptr<internal::ContextState> context_;
  std::shared_ptr<internal::StreamState> state_;
  std::string name_;
  const Device device_;
  const uint64_t id_;
  const bool owned_;
  // Null: checks are off.
  RaceChecker* const checker_;
  const RaceChecker::ActorId actor_;

  // Held from the check to the enqueue, so that the checker sees the queue's order.
  Mutex submit_mutex_;
  internal::FirstError race_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_STREAM_H_
