#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_EXECUTOR_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_EXECUTOR_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/collectives/algorithms/program.h"
#include "brigade/collectives/algorithms/workspace.h"
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
//              more sources than a kernel takes, and the program's scratch; counted as
//              communication.
// Time         All ranks' programs are searched for this one's part once for a signature; it is
//              kept for 64 of them.
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
  // What the calls of a signature do on this rank, whatever their arrays are.
  struct Plan {
    struct Move {
      bool sends;
      // Of this rank; or of another one: then it is received so many bytes into the landing.
      Part part;
      int64_t landing;
      int64_t count;
      int peer;
    };
    // Of sources of other ranks the first lies `landing` bytes into the landing, the others behind
    // it.
    struct Reduction {
      std::vector<Part> sources;
      Part target;
      int64_t landing;
      int64_t count;
    };
    struct Stage {
      std::vector<Move> reads;
      std::vector<Reduction> reductions;
      std::vector<Move> writes;
      int64_t landing_bytes = 0;
    };
    CollectiveSignature signature;
    Workspace workspace;
    std::vector<Stage> stages;
  };

  const Plan& PlanOf(const CollectiveSignature& signature);
  Plan Make(const CollectiveSignature& signature) const;
  void AddOwn(const Instruction& instruction, int64_t part_bytes, Plan::Stage& stage) const;
  absl::Status Reserve(const Plan& plan);
  absl::Span<const Transfer> Addressed(absl::Span<const Plan::Move> moves);
  absl::Status Reduce(const Plan::Reduction& reduction, device::Stream& stream);
  char* Address(const Part& part) const { return AddressOf(part, *collective_, scratch_.data()); }

  device::Context& context_;
  const int rank_;
  const int size_;
  std::vector<Plan> plans_;
  // Where the next one goes when all places are taken.
  size_t oldest_ = 0;
  device::Buffer scratch_, landing_, partials_;
  std::vector<Transfer> transfers_;
  std::vector<const void*> sources_;
  // The one that runs.
  const Collective* collective_ = nullptr;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_EXECUTOR_H_
