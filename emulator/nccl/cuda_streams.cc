#include "brigade/emulator/nccl/cuda_streams.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/runtime/library.h"

namespace brigade::emulator {
namespace {

struct CudaOrder final : KernelOrder {
  KernelChain chain;
};

class Cuda final : public NcclStreams {
 public:
  std::unique_ptr<KernelOrder> CreateOrder() override { return std::make_unique<CudaOrder>(); }

  absl::Status Enqueue(NcclStream stream, const NcclKernel& kernel,
                       absl::Span<const TransferPart> transfers) override {
    std::vector<TransferPart> parts(transfers.begin(), transfers.end());
    const cudaError_t enqueued = EnqueueKernel(
        stream, "nccl",
        [this, kernel, parts = std::move(parts)] { return kernel.Run(parts, *this); },
        &static_cast<CudaOrder&>(*kernel.rank->order).chain);
    if (enqueued == cudaSuccess) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("CUDA error ", static_cast<int>(enqueued)));
  }

  absl::StatusOr<const void*> Readable(const void* address, int64_t bytes) override {
    return bytes == 0 ? address : ReadableBytes(address, bytes);
  }
  absl::StatusOr<void*> Reachable(void* address, int64_t bytes) override {
    return bytes == 0 ? address : ReachableBytes(address, bytes);
  }
  absl::Status SetWritten(void* address, int64_t bytes) override {
    return WritableBytes(address, bytes).status();
  }

  void Report(const std::string& misuse) override { ReportMistake(misuse); }
};

}  // namespace

NcclStreams& CudaStreams() {
  static Cuda streams;
  return streams;
}

}  // namespace brigade::emulator
