#ifndef BRIGADE_COLLECTIVES_COMMUNICATOR_H_
#define BRIGADE_COLLECTIVES_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/collectives/engines/registration.h"
#include "brigade/collectives/options.h"
#include "brigade/collectives/tuning/auto_algorithm.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// One rank's face of a group: operations that every rank enqueues on its own stream.
//
// Order        All ranks make the same calls in the same order. A call runs in the order of its
//              stream, and after this communicator's earlier calls, whatever stream they were on.
// Arrays       Memory of the stream's device, `size` being the number of ranks:
//                               input              output            in place
//              AllReduce        [count]            [count]           output == input
//              ReduceScatter    [size * count]     [count]           output == input + rank * count
//              AllGather        [count]            [size * count]    input == output + rank * count
//              AllToAll         [size * count]     [size * count]    no
//              Shift            [count]            [count]           no
//              Broadcast        [count] at root    [count]           output == input
//              Both may be null where they have no elements.
// Types        Calls over spans take float, double, Half, BFloat16, int32_t, int64_t and uint8_t,
//              and `count` from the spans' sizes: InvalidArgument if these do not fit. Calls over
//              pointers take a DType.
// Precision    Reduction (options.h) says where a sum is rounded. All ranks get the same bits. NaN
//              stays NaN.
// Traffic      size - 1 parts of a reduce-scatter or an all-gather, twice that for an all-reduce:
//              per rank 2 (size - 1) / size * count elements of an all-reduce are sent. A shift
//              sends its array once.
//              kHalvingDoubling sends more where size is no power of two.
//              algorithms/wire_elements.h says what each algorithm sends.
// Errors       InvalidArgument for this rank's bad arguments: nothing happens, the others wait.
//              Everything else ends the communicator on all ranks with one error that names the
//              rank that caused it: InvalidArgument for calls that differ (both are named),
//              DeadlineExceeded for a rank that does not come, Unavailable for one that is gone.
//              Some engines tell on the call, others on the stream, NCCL on neither: Synchronize
//              asks all. What is left makes a new communicator with Shrink. After such an error
//              arrays of unfinished calls may still be read until the communicator is destroyed;
//              what they hold is not defined.
// Allocation   None in steady state.
// Threads      Abort and status from any thread; calls one at a time.
class Communicator {
  // From which no element type is deduced, so that a container will do.
  template <typename T>
  using ConstSpan = std::type_identity_t<absl::Span<const T>>;

 public:
  // `context` is this rank's and must outlive the communicator. InvalidArgument for a topology that
  // is not valid, or has another number of ranks.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(
      std::unique_ptr<Engine> engine, device::Context& context,
      const CommunicatorOptions& options = {});

  int rank() const { return engine_->rank(); }
  int size() const { return engine_->size(); }

  absl::Status AllReduce(const void* input, void* output, int64_t count, precision::DType dtype,
                         const ReduceOptions& options, device::Stream& stream);
  absl::Status ReduceScatter(const void* input, void* output, int64_t count, precision::DType dtype,
                             const ReduceOptions& options, device::Stream& stream);
  absl::Status AllGather(const void* input, void* output, int64_t count, precision::DType dtype,
                         const GatherOptions& options, device::Stream& stream);
  absl::Status AllToAll(const void* input, void* output, int64_t count, precision::DType dtype,
                        device::Stream& stream);
  // Rank r gets the input of rank r - distance, and of the ranks as a ring: a distance may be any
  // number, also negative; all ranks give the same.
  absl::Status Shift(const void* input, void* output, int64_t count, precision::DType dtype,
                     int distance, device::Stream& stream);
  // `input` is read at the root only.
  absl::Status Broadcast(const void* input, void* output, int64_t count, precision::DType dtype,
                         int root, device::Stream& stream);
  // A send meets the other rank's receive; calls between two ranks are in order.
  absl::Status Send(const void* input, int64_t count, precision::DType dtype, int to,
                    device::Stream& stream);
  absl::Status Receive(void* output, int64_t count, precision::DType dtype, int from,
                       device::Stream& stream);

  // The same over spans. The element type is that of the output:
  //
  //   communicator.AllReduce(x, absl::MakeSpan(y), {}, stream)
  template <typename T>
  absl::Status AllReduce(ConstSpan<T> input, absl::Span<T> output, const ReduceOptions& options,
                         device::Stream& stream) {
    BRIGADE_RETURN_IF_ERROR(CheckSizes(CollectiveKind::kAllReduce, input.size(), output.size()));
    return AllReduce(input.data(), output.data(), Count(output), precision::kDType<T>, options,
                     stream);
  }
  template <typename T>
  absl::Status ReduceScatter(ConstSpan<T> input, absl::Span<T> output, const ReduceOptions& options,
                             device::Stream& stream) {
    BRIGADE_RETURN_IF_ERROR(
        CheckSizes(CollectiveKind::kReduceScatter, input.size(), output.size()));
    return ReduceScatter(input.data(), output.data(), Count(output), precision::kDType<T>, options,
                         stream);
  }
  template <typename T>
  absl::Status AllGather(ConstSpan<T> input, absl::Span<T> output, const GatherOptions& options,
                         device::Stream& stream) {
    BRIGADE_RETURN_IF_ERROR(CheckSizes(CollectiveKind::kAllGather, input.size(), output.size()));
    return AllGather(input.data(), output.data(), Count(input), precision::kDType<T>, options,
                     stream);
  }
  template <typename T>
  absl::Status AllToAll(ConstSpan<T> input, absl::Span<T> output, device::Stream& stream) {
    BRIGADE_RETURN_IF_ERROR(CheckSizes(CollectiveKind::kAllToAll, input.size(), output.size()));
    return AllToAll(input.data(), output.data(), Count(output) / size(), precision::kDType<T>,
                    stream);
  }
  template <typename T>
  absl::Status Shift(ConstSpan<T> input, absl::Span<T> output, int distance,
                     device::Stream& stream) {
    BRIGADE_RETURN_IF_ERROR(CheckSizes(CollectiveKind::kShift, input.size(), output.size()));
    return Shift(input.data(), output.data(), Count(output), precision::kDType<T>, distance,
                 stream);
  }
  // `input` may be empty on other ranks than the root.
  template <typename T>
  absl::Status Broadcast(ConstSpan<T> input, absl::Span<T> output, int root,
                         device::Stream& stream) {
    if (rank() == root) {
      BRIGADE_RETURN_IF_ERROR(CheckSizes(CollectiveKind::kBroadcast, input.size(), output.size()));
    }
    return Broadcast(input.data(), output.data(), Count(output), precision::kDType<T>, root,
                     stream);
  }
  template <typename T>
  absl::Status Send(absl::Span<const T> input, int to, device::Stream& stream) {
    return Send(input.data(), Count(input), precision::kDType<T>, to, stream);
  }
  template <typename T>
  absl::Status Receive(absl::Span<T> output, int from, device::Stream& stream) {
    return Receive(output.data(), Count(output), precision::kDType<T>, from, stream);
  }

  // What is enqueued after it, on any rank, runs after what was enqueued before it on all ranks.
  absl::Status Barrier(device::Stream& stream);

  // Gives every rank the values of all, [rank][i], on the host. A call of all ranks; all give as
  // many.
  absl::StatusOr<std::vector<int64_t>> AllGatherHost(absl::Span<const int64_t> values);

  // New communicators, one for each color, of the ranks that give it; ordered by key, then by rank.
  // A negative color gets none (null). A call of all ranks, on the host. They keep what the
  // topology says of their ranks, if these are still numbered node by node.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key);

  // A communicator of the same ranks for calls on the host alone: AllGatherHost, Abort, status, and
  // Split, Shrink and CreateHostChannel, which make others of its kind. A call of all ranks, on the
  // host. On NCCL it is a group of the side channel's engine, and takes no memory of the GPU.
  //
  // Threads      Its calls come from one thread at a time, whatever another thread does with this
  //              communicator meanwhile: calls, Split, destruction. But the two must not make
  //              others at the same time: the store by which processes meet serves one wait after
  //              another, and ranks that come to it in different orders would wait for each other
  //              until InitOptions::connect_timeout.
  // Lifetime     Either may be destroyed first.
  // Errors       It goes on when this one fails, and this one when it fails; a rank that is gone
  //              ends both. Calls on a stream, and Reserve, are FailedPrecondition on every engine:
  //              nothing happens, and the channel goes on. FailedPrecondition, of this call, for a
  //              borrowed communicator of NCCL without a side channel.
  absl::StatusOr<std::unique_ptr<Communicator>> CreateHostChannel();

  // A new communicator without the ranks `lost`, in the same order. A call of all others, on the
  // host, with the same list; also after this communicator has failed. For ranks that are gone:
  // Split leaves out ranks that live. In a communicator that has not failed, a Shrink that loses no
  // rank is compared like other calls; one that loses ranks ends the communicator on all of them,
  // the lost ones too, with Aborted and the rank that called it, and every other rank that stays
  // still has to call its own Shrink.
  absl::StatusOr<std::unique_ptr<Communicator>> Shrink(absl::Span<const int> lost);

  // Ends all calls on all ranks with this error; OK stands for Cancelled.
  void Abort(const absl::Status& reason);

  // For the calls that follow, as CommunicatorOptions::topology: one that was measured
  // (measurement/measure.h). A call of all ranks, with the same one; the ranks exchange nothing,
  // and no rank waits. Errors as of Create.
  absl::Status SetTopology(const Topology& topology);

  // The signature of a call with the algorithm that this communicator takes: options.h says how
  // kAuto chooses. To know beforehand what a call sends and needs.
  //
  // Errors       InvalidArgument for a signature that no call may have; naming both for a reduction
  //              and an algorithm that cannot be; naming the algorithm that this engine does not
  //              have.
  absl::StatusOr<CollectiveSignature> Resolve(CollectiveSignature signature);

  // What this rank allocates for such a call beside its arrays, and allocates it now: calls like
  // it, or smaller, then allocate nothing. Several share one workspace, with the larger of each
  // part. Not while a call runs; Reserve may wait for the calls that this rank has enqueued.
  absl::StatusOr<Workspace> WorkspaceFor(const CollectiveSignature& signature);
  absl::Status Reserve(const CollectiveSignature& signature);

  // Says that calls of this communicator will use arrays in this memory of the context's device
  // again and again, so that its engine need not copy them on their way: NCCL maps the memory for
  // the other GPUs and for the network (ncclCommRegister). The other engines read and write arrays
  // where they are; there it succeeds and does nothing. No rank waits for another one, and each may
  // register what it likes: results and their bits are the same.
  //
  // Lifetime     Until the registration is destroyed: before the memory and the communicator are.
  //              This may wait until the calls that this rank has enqueued have ended.
  //              Communicators that Split and Shrink make know nothing of it.
  // Errors       InvalidArgument for memory without an address or with a negative size; the error
  //              that ended the communicator, also where NCCL refuses the memory.
  absl::StatusOr<Registration> Register(void* data, int64_t bytes);

  // OK, or the error that ended the communicator.
  absl::Status status() const { return engine_->status(); }

  // Waits for `stream`, and gives its error or, if it has none, status(): on an engine whose
  // streams go on after an error (nccl_engine.h) arrays of calls hold results only if this is OK.
  absl::Status Synchronize(device::Stream& stream) const;
  // For work that must not use such arrays: Engine::failure_flag, which lives as long as the
  // communicator.
  const int32_t* failure_flag() const { return engine_->failure_flag(); }

  // Payload bytes sent to a rank so far; engine.h says what counts where memory is shared.
  // 0 for a rank that is not in the group.
  int64_t sent_bytes(int to) const;

 private:
  Communicator(std::unique_ptr<Engine> engine, device::Context& context, CallOrder order);

  // InvalidArgument naming both sizes if they do not fit.
  absl::Status CheckSizes(CollectiveKind kind, size_t input, size_t output) const;
  template <typename T>
  static int64_t Count(absl::Span<T> array) {
    return static_cast<int64_t>(array.size());
  }
  absl::Status ChooseAlgorithm(CollectiveSignature& signature);
  absl::Status PlaceOnNodes(CollectiveSignature& signature) const;
  absl::Status CheckHasStreams(CollectiveKind kind) const;
  absl::Status Run(Collective collective, device::Stream& stream);
  absl::StatusOr<std::vector<int64_t>> AllGatherHost(HostCollective collective,
                                                     absl::Span<const int64_t> values);
  absl::StatusOr<std::unique_ptr<Communicator>> CreateOf(std::unique_ptr<Engine> engine,
                                                         absl::Span<const int> ranks);

  const std::unique_ptr<Engine> engine_;
  device::Context& context_;
  std::optional<Topology> topology_;
  // Chooses for topology_.
  std::optional<AutoAlgorithm> auto_algorithm_;
  CallOrder order_;
  // As CreateHostChannel makes it.
  bool is_host_channel_ = false;
  uint64_t calls_ = 0;
  // Communicators made of this one. After an error in a Split some ranks have counted it and some
  // have not, so Shrink has a count of its own.
  uint64_t splits_ = 0, shrinks_ = 0;
  // How many sends to, and receives from, each rank.
  std::vector<uint64_t> sends_, receives_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMMUNICATOR_H_
