// EmulatedNccl on the host's own memory and streams.

#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "brigade/device/stream.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/emulator/nccl/communicator.h"
#include "brigade/emulator/nccl/streams.h"

namespace brigade::emulator {
namespace {

// Gives each kernel its turn. What a failed stream skips has had it.
class CpuOrder final : public KernelOrder {
 public:
  // One thread enqueues the kernels of a communicator.
  uint64_t Issue() { return issued_++; }

  void Await(uint64_t turn) {
    const device::MutexLock lock(mutex_);
    while (ended_ < turn && !is_aborted_) changed_.Wait(mutex_);
  }
  void End() {
    const device::MutexLock lock(mutex_);
    ++ended_;
    changed_.SignalAll();
  }
  void Abort() override {
    const device::MutexLock lock(mutex_);
    is_aborted_ = true;
    changed_.SignalAll();
  }

 private:
  uint64_t issued_ = 0;
  device::Mutex mutex_;
  device::CondVar changed_;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_aborted_ ABSL_GUARDED_BY(mutex_) = false;
};

// A kernel in a stream, and its turn, which ends with it.
class OrderedKernel {
 public:
  OrderedKernel(const NcclKernel& kernel, CpuOrder& order)
      : kernel_(kernel), order_(&order), turn_(order.Issue()) {}
  OrderedKernel(OrderedKernel&& other) noexcept
      : kernel_(std::move(other.kernel_)),
        order_(std::exchange(other.order_, nullptr)),
        turn_(other.turn_) {}
  ~OrderedKernel() {
    if (order_ != nullptr) order_->End();
  }

  absl::Status Run(absl::Span<const TransferPart> transfers, NcclStreams& streams) const {
    order_->Await(turn_);
    return kernel_.Run(transfers, streams);
  }

 private:
  NcclKernel kernel_;
  CpuOrder* order_;
  uint64_t turn_;
};

class Cpu final : public NcclStreams {
 public:
  std::unique_ptr<KernelOrder> CreateOrder() override { return std::make_unique<CpuOrder>(); }

  absl::Status Enqueue(NcclStream stream, const NcclKernel& kernel,
                       absl::Span<const TransferPart> transfers) override {
    if (NcclState::Get().capturing) return absl::OkStatus();
    absl::InlinedVector<device::Access, kFewTransfers> accesses;
    if (kernel.collective.has_value()) {
      const CollectivePart& part = *kernel.collective;
      const int size = kernel.rank->group->size();
      if (part.Reads(kernel.rank->rank)) {
        accesses.push_back(device::Reads(part.input, static_cast<int64_t>(InputBytes(part, size))));
      }
      accesses.push_back(
          device::Writes(part.output, static_cast<int64_t>(OutputBytes(part, size))));
    }
    for (const TransferPart& part : transfers) {
      accesses.push_back({part.data, static_cast<int64_t>(part.bytes), !part.sends});
    }
    auto& order = static_cast<CpuOrder&>(*kernel.rank->order);
    OrderedKernel ordered(kernel, order);
    return reinterpret_cast<device::Stream*>(stream)->Enqueue(
        {"nccl", accesses}, transfers,
        [this, ordered = std::move(ordered)](absl::Span<const TransferPart> parts,
                                             device::ThreadPool&) {
          return ordered.Run(parts, *this);
        });
  }

  absl::StatusOr<const void*> Readable(const void* address, int64_t) override { return address; }
  absl::StatusOr<void*> Reachable(void* address, int64_t) override { return address; }
  absl::Status SetWritten(void*, int64_t) override { return absl::OkStatus(); }
  // Tests ask for EmulatedNccl::Misuses.
  void Report(const std::string&) override {}
};

}  // namespace

NcclApi EmulatedNccl::Api() {
  static Cpu streams;
  NcclApi api = NcclFunctions(streams);
  api.is_capturing = [](NcclStream) -> bool { return NcclState::Get().capturing; };
  // The stand-in takes the device::Stream itself, and declares its reads and writes there.
  api.supports = [](device::DeviceKind kind) { return kind == device::DeviceKind::kCpu; };
  api.launch = [](device::Stream& stream, const device::Operation&,
                  absl::FunctionRef<absl::Status(NcclStream stream)> call) {
    return call(reinterpret_cast<NcclStream>(&stream));
  };
  return api;
}

}  // namespace brigade::emulator
