#ifndef BRIGADE_COLLECTIVES_COMMUNICATOR_H_
#define BRIGADE_COLLECTIVES_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

struct MoveOptions {
  precision::DType dtype = precision::DType::kFloat32;
  Algorithm algorithm = Algorithm::kDirect;
};

struct ReduceOptions {
  precision::DType dtype = precision::DType::kFloat32;
  kernels::ReduceOp op = kernels::ReduceOp::kSum;
  Algorithm algorithm = Algorithm::kDirect;
};

// One rank's face of a group: operations that every rank enqueues on its own stream.
//
// Order        All ranks make the same calls in the same order. A call runs in the order of its stream, and
//              after this communicator's earlier calls, whatever stream they were on.
// Arrays       Memory of the stream's device, `size` being the number of ranks:
//                               input              output            in place
//              AllReduce        [count]            [count]           output == input
//              ReduceScatter    [size * count]     [count]           output == input + rank * count
//              AllGather        [count]            [size * count]    input == output + rank * count
//              AllToAll         [size * count]     [size * count]    no
//              Broadcast        [count] at root    [count]           output == input
//              Both may be null where they have no elements.
// Precision    kDirect: 16-bit types are added in float in ascending order of ranks and rounded once, the same
//              bits on every engine. The others round at each hop. All ranks get the same bits. NaN stays NaN.
// Traffic      size - 1 parts of a reduce-scatter or an all-gather, twice that for an all-reduce: per rank
//              2 (size - 1) / size * count elements of an all-reduce are sent. kHalvingDoubling sends more where size is
//              no power of two.
// Errors       InvalidArgument for this rank's bad arguments: nothing happens, the others wait. Everything else
//              ends the communicator on all ranks with one error that names the rank that caused it:
//              InvalidArgument for calls that differ (both are named), DeadlineExceeded for a rank that does
//              not come, Unavailable for one that is gone. Some engines tell on the call, others on the stream.
//              What is left makes a new communicator with Shrink. After such an error arrays of unfinished calls
//              may still be read until the communicator is destroyed; what they hold is not defined.
// Allocation   None in steady state.
// Threads      Abort and status from any thread; calls one at a time.
class Communicator {
 public:
  // `context` is this rank's and must outlive the communicator.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(std::unique_ptr<Engine> engine,
                                                              device::Context& context);

  int rank() const { return engine_->rank(); }
  int size() const { return engine_->size(); }

  absl::Status AllReduce(const void* input, void* output, int64_t count,
                         const ReduceOptions& options, device::Stream& stream);
  absl::Status ReduceScatter(const void* input, void* output, int64_t count,
                             const ReduceOptions& options, device::Stream& stream);
  absl::Status AllGather(const void* input, void* output, int64_t count, const MoveOptions& options,
                         device::Stream& stream);
  absl::Status AllToAll(const void* input, void* output, int64_t count, const MoveOptions& options,
                        device::Stream& stream);
  // `input` is read at the root only.
  absl::Status Broadcast(const void* input, void* output, int64_t count, int root,
                         const MoveOptions& options, device::Stream& stream);
  // A send meets the other rank's receive; calls between two ranks are in order.
  absl::Status Send(const void* input, int64_t count, int to, const MoveOptions& options,
                    device::Stream& stream);
  absl::Status Receive(void* output, int64_t count, int from, const MoveOptions& options,
                       device::Stream& stream);
  // What is enqueued after it, on any rank, runs after what was enqueued before it on all ranks.
  absl::Status Barrier(device::Stream& stream);

  // Gives every rank the values of all, [rank][i], on the host. A call of all ranks; all give as many.
  absl::StatusOr<std::vector<int64_t>> AllGatherHost(absl::Span<const int64_t> values);

  // New communicators, one for each color, of the ranks that give it; ordered by key, then by rank. A negative
  // color gets none (null). A call of all ranks, on the host.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key);

  // A new communicator without the ranks `lost`, in the same order. A call of all others, on the host, with the
  // same list; also after this communicator has failed. For ranks that are gone: Split leaves out those that live.
  // One that has not failed is compared like other calls if nobody is lost; otherwise it ends on all ranks, the lost
  // ones too, with Aborted and the rank that called this: those that hear of it have their Shrink still to call.
  absl::StatusOr<std::unique_ptr<Communicator>> Shrink(absl::Span<const int> lost);

  // Ends all calls on all ranks with this error.
  void Abort(const absl::Status& reason) { engine_->Abort(reason); }

  // OK, or the error that ended the communicator.
  absl::Status status() const { return engine_->status(); }

  // Payload bytes sent to a rank so far; engine.h says what counts where memory is shared.
  int64_t sent_bytes(int to) const { return engine_->sent_bytes(to); }

 private:
  Communicator(std::unique_ptr<Engine> engine, device::Context& context,
               std::unique_ptr<device::Event> last);

  absl::Status Run(Collective collective, device::Stream& stream);
  absl::StatusOr<std::vector<int64_t>> AllGatherHost(HostCollective collective,
                                                     absl::Span<const int64_t> values);

  const std::unique_ptr<Engine> engine_;
  device::Context& context_;
  CallOrder order_;
  uint64_t calls_ = 0;
  // Communicators made of this one. After an error in a Split some ranks have counted it and some have not, so Shrink
  // has a count of its own.
  uint64_t splits_ = 0, shrinks_ = 0;
  std::vector<uint64_t> sends_, receives_;  // [rank]
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMMUNICATOR_H_
