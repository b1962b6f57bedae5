#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_NCCL_ENGINE_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_NCCL_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/collectives/engines/nccl/api.h"
#include "brigade/device/context.h"

namespace brigade::collectives {

struct NcclOptions {
  // LoadNccl().
  NcclApi api;
  // How long a call may wait in NCCL on the host, and how long it may run from when it is at the
  // head of its stream. The side channel's should be longer, by a quarter for example: where it is
  // not, an error may name only one of two calls that differ, a send and what it has met.
  absl::Duration timeout = absl::Minutes(10);
  // Whether the side channel compares the calls of all ranks. If not, collectives that differ end
  // by the timeout.
  bool compare_calls = true;
};

// Ranks that are GPUs, reached by NCCL. A side channel, which is an engine of the host with the
// same ranks (gloo, or threads), tells the ranks what NCCL does not: the unique id, each other's
// calls, who is gone, and what ended the group.
//
// Algorithms   kNative is NCCL's own all-reduce, reduce-scatter or all-gather, by an algorithm that
//              NCCL chooses; kAuto takes it for all-gathers and for sums that are rounded per hop.
//              There is none for minima and maxima of floating-point numbers, because NCCL's may
//              lose a NaN. The other algorithms carry our programs out by sends, and by kernels
//              that add what has come, of any number of ranks. Broadcasts, barriers, sends and
//              all-to-alls are NCCL's own collectives or grouped sends.
// Stream       Calls are enqueued on the caller's stream. The host waits only until NCCL has taken
//              them: microseconds, and the time to connect at first.
// Graphs       Calls can be captured into a CUDA graph, by all ranks or none, in thread-local or
//              relaxed mode, if the same calls were made once before. They are not compared, and
//              the graph's launches have no deadline.
// Errors       NCCL's, in the words of status.h. Calls that differ, a rank that does not come and
//              one that is gone are noticed beside the call, which is aborted: the stream goes on
//              with what then lies in its arrays, so wait by Communicator::Synchronize. Sends
//              and receives are compared when the timeout is over: one that has met something else
//              ends then, with an error that names both, and one that has met nothing by the side
//              channel's deadline. Of one that NCCL has carried out, with a part of a collective,
//              the error names the collective only. A receive of another length than its send is
//              NCCL's to notice.
// Counting     sent_bytes counts what programs of the algorithms send; of kNative what a ring
//              would.
// Host         CreateHostChannel makes a group of the side channel's engine, and calls nothing of
//              NCCL.
// Register     ncclCommRegister, and ncclCommDeregister at the registration's end.
// Memory       What kDirect adds, size - 1 times a rank's part, or a stage of the others; where
//              more than 64 arrays are added, their partial sums, a rank's part in the type that is
//              added in; and the programs' scratch; counted as communication.
// Threads      Two of its own. NCCL is called under one lock for each communicator.
// Lifetime     Destruction waits for calls that are enqueued, as long as their deadlines allow.
//
// InvalidArgument for a context on a device that the library does not serve.
absl::Status CheckNcclDevice(const NcclOptions& options, const device::Context& context);

// One rank of a new NCCL communicator of all ranks of `side`; returns when all are there.
// InvalidArgument for a context that is not on a GPU.
absl::StatusOr<std::unique_ptr<Engine>> CreateNcclEngine(const NcclOptions& options,
                                                         std::unique_ptr<Engine> side,
                                                         device::Context& context);

// The same over a communicator that somebody else owns, and destroys after the engine; an error
// revokes it where NCCL can (2.28), or leaves its calls to the owner. It should be non-blocking,
// and nobody else calls NCCL with it meanwhile; one that is still being made is waited for. `side`
// may be null: then calls are not compared, errors not passed on, and Split, Shrink and
// CreateHostChannel FailedPrecondition. InvalidArgument if `side` has other ranks.
absl::StatusOr<std::unique_ptr<Engine>> BorrowNcclEngine(const NcclOptions& options,
                                                         ::ncclComm* comm,
                                                         std::unique_ptr<Engine> side,
                                                         device::Context& context);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_NCCL_ENGINE_H_
