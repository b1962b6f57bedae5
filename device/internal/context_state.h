#ifndef BRIGADE_DEVICE_INTERNAL_CONTEXT_STATE_H_
#define BRIGADE_DEVICE_INTERNAL_CONTEXT_STATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/context_options.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/memory_stats.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/device/tracing/tracer.h"

namespace brigade::device::internal {

// What a context shares with its streams, events and buffers, and what therefore lives as long as
// the last of them.
//
// Threads      Safe from any thread.
class ContextState {
 public:
  // Options are valid, with defaults filled in.
  ContextState(const ContextOptions& options, RaceChecker* checker, int compute_threads);
  ~ContextState();
  ContextState(const ContextState&) = delete;
  ContextState& operator=(const ContextState&) = delete;

  const Device device;
  const std::string name;
  // Null: checks are off.
  RaceChecker* const checker;
  // Null: nothing is traced.
  Tracer* const tracer;
  // Of the device's memory, and of the host's.
  MemoryStats memory_stats, host_memory_stats;
  ThreadPool pool;
  // Set once, before the state is shared.
  std::unique_ptr<Backend> backend;

  void CountHostWait() { host_waits_.fetch_add(1, std::memory_order_relaxed); }
  int64_t host_waits() const { return host_waits_.load(std::memory_order_relaxed); }

  // The streams whose work is waited for before memory is freed.
  void AddStream(std::shared_ptr<StreamState> state, RaceChecker::ActorId actor);
  void RemoveStream(const StreamState* state);

  // What memory of a tier belongs to, kDevice or kHost.
  Device DeviceOf(Tier tier) const {
    return tier == Tier::kDevice || device.kind == DeviceKind::kCpu ? device : Cpu();
  }

  int64_t LimitOf(Tier tier) const {
    return tier == Tier::kDevice ? limit_bytes_ : host_limit_bytes_;
  }

  absl::StatusOr<void*> Allocate(int64_t bytes, Tier tier, Purpose purpose, absl::string_view name);
  void Free(void* data, int64_t bytes, Tier tier, Purpose purpose);

 private:
  struct RegisteredStream {
    std::shared_ptr<StreamState> state;
    RaceChecker::ActorId actor = 0;
  };
  struct Allocation {
    void* data = nullptr;
    int64_t bytes = 0;
    Tier tier = Tier::kDevice;
    Purpose purpose = Purpose::kScratch;
  };

  MemoryStats& BooksOf(Tier tier) {
    return tier == Tier::kDevice ? memory_stats : host_memory_stats;
  }

  // Whether a CUDA graph captures a stream. What is freed then is kept until none does: CUDA would
  // give the capture up.
  bool AnyCaptures();
  void WaitForStreams();
  absl::Status Poison(const Allocation& memory);
  void ReturnToSystem(const Allocation& memory);
  void ReturnMemory(const Allocation& memory);
  void ReturnDeferred();

  const int64_t limit_bytes_, host_limit_bytes_;
  std::atomic<int64_t> host_waits_{0};

  Mutex streams_mutex_;
  std::vector<RegisteredStream> streams_ ABSL_GUARDED_BY(streams_mutex_);

  // Held from the check of a limit until the memory is counted.
  Mutex allocation_mutex_;

  Mutex deferred_mutex_;
  // Memory freed by workers, which must not wait.
  std::vector<Allocation> deferred_ ABSL_GUARDED_BY(deferred_mutex_);
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_INTERNAL_CONTEXT_STATE_H_
