#ifndef BRIGADE_DEVICE_INTERNAL_CONTEXT_STATE_H_
#define BRIGADE_DEVICE_INTERNAL_CONTEXT_STATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/context_options.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/memory_stats.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/device/tracing/tracer.h"

namespace brigade::device::internal {

// In the place of a purpose: memory of the host, which no books count.
inline constexpr std::optional<Purpose> kHostMemory = std::nullopt;

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
  RaceChecker* const checker;  // null: checks are off
  Tracer* const tracer;        // null: nothing is traced
  MemoryStats memory_stats;
  ThreadPool pool;
  std::unique_ptr<Backend> backend;  // set once, before the core is shared

  void CountHostWait() { host_waits_.fetch_add(1, std::memory_order_relaxed); }
  int64_t host_waits() const { return host_waits_.load(std::memory_order_relaxed); }

  // Streams whose work a freed buffer waits for.
  void AddStream(std::shared_ptr<StreamState> state, RaceChecker::ActorId actor);
  void RemoveStream(const StreamState* state);

  // What AllocateHost's memory belongs to.
  Device host() const { return device.kind == DeviceKind::kCpu ? device : Cpu(); }

  absl::StatusOr<void*> Allocate(int64_t bytes, std::optional<Purpose> purpose,
                                 absl::string_view name);
  void Free(void* data, int64_t bytes, std::optional<Purpose> purpose);

 private:
  struct RegisteredStream {
    std::shared_ptr<StreamState> state;
    RaceChecker::ActorId actor = 0;
  };
  struct Allocation {
    void* data = nullptr;
    int64_t bytes = 0;
    std::optional<Purpose> purpose;
  };

  void WaitForStreams();
  absl::Status Poison(const Allocation& memory);
  void ReturnToSystem(const Allocation& memory);
  void ReturnMemory(const Allocation& memory);
  void ReturnDeferred();

  const int64_t limit_bytes_;
  std::atomic<int64_t> host_waits_{0};

  std::mutex streams_mutex_;
  std::vector<RegisteredStream> streams_;

  std::mutex allocation_mutex_;  // from the look at the limit to the entry in the books

  std::mutex deferred_mutex_;
  std::vector<Allocation> deferred_;  // freed by workers, who must not wait
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_INTERNAL_CONTEXT_STATE_H_
