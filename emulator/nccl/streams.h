#ifndef BRIGADE_EMULATOR_NCCL_STREAMS_H_
#define BRIGADE_EMULATOR_NCCL_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/emulator/nccl/rank_group.h"

namespace brigade::emulator {

class NcclStreams;

// Keeps the kernels of a rank in the order of their calls, whatever their streams are. Each kind of
// streams has its own.
class KernelOrder {
 public:
  virtual ~KernelOrder() = default;
  // After an abort: nobody waits for an earlier kernel any more.
  virtual void Abort() {}
};

// What kernels of a rank need, also when its communicator is gone.
struct RankState {
  std::shared_ptr<RankGroup> group;
  int rank = 0;
  std::unique_ptr<KernelOrder> order;
  std::atomic<bool> aborted{false};
  // That have begun to run: a graph's replay runs more than were enqueued.
  std::atomic<uint64_t> collectives{0};
  // No kernel is enqueued, runs, or lies in a graph that lives, and none will.
  std::atomic<bool> kernels_ended{false};
};

// A collective, or the transfers of a group of calls.
struct NcclKernel {
  std::shared_ptr<RankState> rank;
  std::optional<CollectivePart> collective;

  // On the stream's thread.
  absl::Status Run(absl::Span<const TransferPart> transfers, NcclStreams& streams) const;
};

// What differs between streams of the CPU and of CUDA: how a kernel gets into one, and how the host
// reaches its arrays.
class NcclStreams {
 public:
  virtual ~NcclStreams() = default;

  virtual std::unique_ptr<KernelOrder> CreateOrder() = 0;

  // Enqueues kernel.Run(transfers, *this), behind the rank's kernels that were enqueued earlier.
  virtual absl::Status Enqueue(NcclStream stream, const NcclKernel& kernel,
                               absl::Span<const TransferPart> transfers) = 0;

  // In a kernel's run: where the host finds bytes of the device.
  virtual absl::StatusOr<const void*> Readable(const void* address, int64_t bytes) = 0;
  // To be written there; from SetWritten on they count as written.
  virtual absl::StatusOr<void*> Reachable(void* address, int64_t bytes) = 0;
  virtual absl::Status SetWritten(void* address, int64_t bytes) = 0;

  // A misuse, beside EmulatedNccl::Misuses.
  virtual void Report(const std::string& misuse) = 0;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_STREAMS_H_
