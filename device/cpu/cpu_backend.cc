#include "brigade/device/cpu/cpu_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/cpu/cpu_memory.h"
#include "brigade/device/cpu/cpu_stream.h"

namespace brigade::device::internal {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(ThreadPool& pool, const CpuStream::Slowness& slowness)
      : pool_(pool), slowness_(slowness) {}

  absl::StatusOr<void*> Allocate(int64_t bytes) override { return AllocateMemory(bytes); }

  void Free(void* data, int64_t) override { FreeMemory(data); }

  absl::Status FillBytes(void* data, uint8_t value, int64_t bytes) override {
    FillMemory(data, value, bytes, pool_);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<StreamState>> CreateStream(std::string label,
                                                            TraceBuffer* trace_buffer) override {
    return CpuStream::Create(std::move(label), pool_, slowness_, trace_buffer);
  }

  absl::StatusOr<std::shared_ptr<StreamState>> BorrowStream(void*, std::string label,
                                                            TraceBuffer*) override {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": the CPU has no native streams to borrow"));
  }

  absl::StatusOr<std::unique_ptr<EventState>> CreateEvent() override {
    return std::make_unique<CpuEvent>();
  }

 private:
  ThreadPool& pool_;
  const CpuStream::Slowness slowness_;
};

}  // namespace

std::unique_ptr<Backend> CreateCpuBackend(ThreadPool& pool, const ContextOptions& options) {
  return std::make_unique<CpuBackend>(
      pool, CpuStream::Slowness{options.random_delay, options.link_bytes_per_second});
}

}  // namespace brigade::device::internal
