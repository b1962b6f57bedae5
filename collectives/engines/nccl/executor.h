#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_EXECUTOR_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_EXECUTOR_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/collectives/algorithms/program.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// Elements that go to a rank or come from it.
struct Transfer {
  bool sends = false;
  void* data = nullptr;
  int64_t count = 0;
  int peer = 0;
};

// Carries one rank's part of programs out by sends and receives that run at once, and kernels
// between them. In each stage: what instructions read elsewhere comes here, they reduce, and what
// they write elsewhere goes there. Every instruction writes an own array.
//
// Memory       What comes to be reduced, all of a stage, partial results where an instruction has
//              more sources than a kernel takes, and the program's scratch; counted as communication.
// Allocation   None in steady state.
// Threads      One at a time.
class NcclExecutor {
 public:
  // Enqueues the transfers as one group: those between two ranks meet in the order in which each of
  // them gives them.
  using EnqueueGroup = absl::FunctionRef<absl::Status(absl::Span<const Transfer>)>;

  NcclExecutor(device::Context& context, int rank, int size)
      : context_(context), rank_(rank), size_(size) {}

  // Allocates what Run needs.
  absl::Status Reserve(const CollectiveSignature& signature);

  absl::Status Run(const Collective& collective, device::Stream& stream, EnqueueGroup enqueue);

 private:
  char* Address(const Part& part) const { return AddressOf(part, *collective_, scratch_.data()); }
  bool IsReceivedInPlace(const Instruction& instruction) const;
  int64_t LandingBytes(const Instruction& instruction) const;
  const Part& OwnTarget(const Instruction& instruction) const;
  void CollectReads(int stage);
  absl::Status Reduce(int stage, device::Stream& stream);
  void CollectWrites(int stage);

  device::Context& context_;
  const int rank_;
  const int size_;
  Program program_;
  device::Buffer scratch_, landing_, partials_;
  std::vector<Transfer> transfers_;
  std::vector<const void*> sources_;
  // The one that runs.
  const Collective* collective_ = nullptr;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_EXECUTOR_H_
