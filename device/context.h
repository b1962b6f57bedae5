#ifndef BRIGADE_DEVICE_CONTEXT_H_
#define BRIGADE_DEVICE_CONTEXT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context_options.h"
#include "brigade/device/device.h"
#include "brigade/device/event.h"
#include "brigade/device/memory_stats.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/stream.h"

namespace brigade::device {

// One rank's use of one device: its streams, its compute threads, its memory and the statistics of
// that memory.
//
// Contract     docs/device.md.
// Lifetime     Streams, events and buffers may outlive it.
// Threads      Safe from any thread.
class Context {
 public:
  // InvalidArgument naming the option and its value. Unavailable, with the reason, if the device
  // cannot be used: no driver, no such device, built without CUDA.
  static absl::StatusOr<std::unique_ptr<Context>> Create(ContextOptions options);

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device device() const;
  absl::string_view name() const;
  // Threads that one CPU operation may use; 1 on CUDA.
  int compute_threads() const;

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(absl::string_view name);
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent(absl::string_view name);

  // Memory of the device, aligned to 256 bytes at least, every byte 0xFF. InvalidArgument if
  // `bytes` is negative; ResourceExhausted beyond the limit or the device, naming context, purpose,
  // request, use by purpose and limit, with the statistics unchanged.
  absl::StatusOr<Buffer> Allocate(int64_t bytes, Purpose purpose, absl::string_view name = "");

  // Memory of the host, for copies to and from the device and for what lives on the host:
  // page-locked on CUDA, so that the host does not wait in Stream::Copy. Contents, alignment and
  // errors as above, with books and a limit of its own: docs/device.md, rule 22.
  absl::StatusOr<Buffer> AllocateHost(int64_t bytes, Purpose purpose, absl::string_view name = "");

  // Wraps memory of this device that the caller owns and keeps alive: not freed, not poisoned, not
  // counted. InvalidArgument if `bytes` is negative, or positive with a null address.
  absl::StatusOr<Buffer> Borrow(void* data, int64_t bytes, absl::string_view name = "");

  // A context of the CPU beside this one, with its checker and tracer and so many threads: for work
  // of the host that events order with this one's streams.
  absl::StatusOr<std::unique_ptr<Context>> CreateHostContext(int compute_threads) const;

  // Wraps a cudaStream_t (null: the default stream) that the caller owns and keeps alive.
  // InvalidArgument on the CPU, and for cudaStreamPerThread, which names another stream in each
  // thread.
  absl::StatusOr<std::unique_ptr<Stream>> BorrowStream(void* cuda_stream, absl::string_view name);

  // Of the device's memory.
  MemoryStats& memory_stats();
  const MemoryStats& memory_stats() const;
  // Of the host's.
  MemoryStats& host_memory_stats();
  const MemoryStats& host_memory_stats() const;

  // ContextOptions' limit of a tier, device or host; 0: none.
  int64_t memory_limit_bytes(Tier tier) const;

  // How often the host waited for this context's device; docs/device.md, rule 19.
  int64_t host_waits() const;

  // The checker that sees this context's operations; null if checks are off.
  RaceChecker* race_checker() const;

 private:
  explicit Context(std::shared_ptr<internal::ContextState> state);

  // Null if the context has no tracer.
  internal::TraceBuffer* CreateTraceBuffer(absl::string_view stream);
  absl::Status CheckBytes(int64_t bytes, absl::string_view name) const;

  std::shared_ptr<internal::ContextState> state_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_CONTEXT_H_
