#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_DISPATCHER_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_DISPATCHER_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/engines/nccl/api.h"
#include "brigade/collectives/engines/nccl/communicator.h"
#include "brigade/collectives/engines/nccl/executor.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// Turns calls into NCCL's collectives, its grouped sends, or our programs over those.
//
// Threads      One at a time.
class NcclDispatcher {
 public:
  // All that is given outlives this.
  NcclDispatcher(const NcclApi& api, NcclCommunicator& comm, int rank, int size,
                 device::Context& context)
      : api_(api),
        comm_(comm),
        rank_(rank),
        size_(size),
        context_(context),
        executor_(context, rank, size) {}

  // Whether NCCL's own collective keeps a NaN: its minima and maxima of floating-point numbers may
  // lose one.
  static bool HasNative(const CollectiveSignature& signature);

  absl::Status Start();

  // Allocates what Run needs.
  absl::Status Reserve(const CollectiveSignature& signature);

  // Sets `is_captured` if a CUDA graph captures the call. If not, calls announce() before NCCL
  // hears of the call.
  absl::Status Run(const Collective& collective, device::Stream& stream, bool& is_captured,
                   absl::FunctionRef<void()> announce);

 private:
  using NcclCall = absl::FunctionRef<NcclOutcome(NcclComm, NcclStream)>;

  // The call that runs.
  struct Running {
    const Collective& collective;
    device::Stream& stream;
    bool& is_captured;
    absl::FunctionRef<void()> announce;
    bool announced = false;
  };

  absl::Status Choose(Running& running);
  absl::Status Whole(Running& running, NcclCall nccl);
  absl::Status Group(Running& running, absl::Span<const Transfer> transfers);
  absl::Status Enqueue(Running& running, const device::Operation& operation, NcclCall nccl);

  const NcclApi& api_;
  NcclCommunicator& comm_;
  const int rank_;
  const int size_;
  device::Context& context_;
  NcclExecutor executor_;
  device::Buffer barrier_;
  std::vector<Transfer> transfers_;
  std::vector<device::Access> accesses_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_DISPATCHER_H_
