#ifndef BRIGADE_ZERO_INTERNAL_STEP_STREAMS_H_
#define BRIGADE_ZERO_INTERNAL_STEP_STREAMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/node_groups.h"
#include "brigade/collectives/engines/registration.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/movement.h"
#include "brigade/zero/plan/step_collectives.h"
#include "brigade/zero/plan/traffic.h"

namespace brigade::zero::internal {

// The reasons for which one stream of a rank waits for another.
enum class WaitPoint : uint8_t {
  // A reduction reads gradients after the backward pass has written them.
  kGradientsWritten,
  // The backward pass writes to memory after that memory's last use.
  kGradientMemoryFree,
  // Compute reads weights after they have been gathered.
  kParametersGathered,
  // A gather writes to memory after compute has read the weights in it.
  kParameterMemoryFree,
  // The update writes weights after all passes have read them.
  kBackwardFinished,
  // The loss is scaled after the last step's decision.
  kStepDecided,
  // The update changes the state after its reader has copied it.
  kStateStaged,

  // With several groups that share a state each:
  // The sum between groups reads a slice after the sum inside the group.
  kSummedInside,
  // Whoever reads a slice of the gradients, or changes it, does so after the sum between groups.
  kSummedBetween,

  // With the optimizer state on the host (HostLane):
  // A copy to the host reads gradients, or the decision, after they have been made.
  kGradientReduced,
  // The memory of a gradient is used again after the copy to the host.
  kGradientCopied,
  // A copy to the host writes after the host's update has read what was there.
  kHostGradientFree,
  // The host's update reads gradients and decision after the copies to the host.
  kGradientOnHost,
  // The host's update writes new weights after the last ones have been copied to the device.
  kHostWeightsFree,
  // A copy to the device reads new weights after the host's update.
  kWeightsUpdated,
  // A gather reads weights after the copy to the device.
  kWeightsOnDevice,
  // Who reads or changes the state between steps does so after the host's update.
  kHostAtRest,

  // With a file (RankFile):
  // A chunk is read into memory after what was there before has gone on.
  kChunkFree,
  // What was read from the file is used after it has been read.
  kChunkRead,
  // A chunk is written to the file after the host's update.
  kChunkUpdated,
  // What a step has written is read after its commit.
  kCommitted,
};

// The streams of a rank, the waits between them, and its collectives.
class StepStreams {
 public:
  static absl::StatusOr<std::unique_ptr<StepStreams>> Create(
      const ZeroOptions& options, collectives::Communicator& communicator, const OuterGroups& outer,
      device::Context& context, device::Stream& compute);

  // The streams of offload, if options have it, with so many threads of the host beside a GPU.
  absl::Status CreateForOffload(int host_threads);

  device::Context& context() { return context_; }
  device::Stream& compute() { return compute_; }
  // The communication stream; the compute stream without overlap.
  device::Stream& comm() { return own_ == nullptr ? compute_ : *own_; }
  // Where groups sum, beside what each of them does; the communication stream without overlap.
  device::Stream& between() { return between_ == nullptr ? comm() : *between_; }
  // With offload: copies to the host, copies to the device, and the host's own work.
  device::Stream& down() { return *down_; }
  device::Stream& up() { return *up_; }
  device::Stream& host() { return *host_; }
  // With a file: reads and writes of the optimizer state, reads of weights, and those of who copies
  // the state, whose errors are no step's.
  device::Stream& from_file() { return *from_file_; }
  device::Stream& to_file() { return *to_file_; }
  device::Stream& weights_from_file() { return *weights_from_file_; }
  device::Stream& copies_from_file() { return *copies_from_file_; }
  // All there are but the compute stream.
  std::vector<device::Stream*> Own();
  // Whose stream that is: a CPU's.
  device::Context& host_context() { return host_context_ == nullptr ? context_ : *host_context_; }
  int rank() const { return communicator_.rank(); }
  int ranks() const { return communicator_.size(); }
  // The number of this rank's group among those with a whole state each.
  int shard_group() const { return outer_.between == nullptr ? 0 : outer_.between->rank(); }
  bool has_shard_groups() const { return outer_.between != nullptr && outer_.between->size() > 1; }
  collectives::Communicator& communicator() { return communicator_; }
  // This rank's place among those near it.
  int near_rank() const { return outer_.near == nullptr ? 0 : outer_.near->rank(); }
  // Those in whose two hops gradients are summed as codes, or exchanged as signs, if they are.
  collectives::NodeCommunicators nodes() const { return {outer_.node, outer_.nodes}; }
  // Of the ranks with the same slices, where there are several groups.
  collectives::Communicator& groups() { return group(StepGroup::kBetween); }
  // Of the statistics; it may be `communicator`.
  collectives::Communicator& world() { return group(StepGroup::kWorld); }
  // All there are, each once.
  std::vector<collectives::Communicator*> communicators();

  // `waiter` waits for the event, which is on another stream.
  absl::Status Wait(WaitPoint point, device::Event& event, device::Stream& waiter);
  // From now on Wait does nothing at this point: with it a test shows that the race checker reports
  // the wait's absence.
  void OmitWait(WaitPoint point) { omitted_ = point; }

  // With the race checker on, sets all bits, so that a read of returned memory gives NaN.
  absl::Status Poison(const device::Buffer& memory, device::Stream& stream);

  // Registers each of these that is not empty with the communicator of that group.
  absl::StatusOr<std::vector<collectives::Registration>> Register(
      const std::vector<const device::Buffer*>& memory, StepGroup role = StepGroup::kShards);

  // Chooses these collectives' algorithms, allocates their workspace and computes what they send,
  // so that a step does none of it. The choice stays, whatever the communicator is told later.
  absl::Status Prepare(const std::vector<StepCollective>& collectives);

  // Waits for the communication stream. An error of the stream or of a communicator: on some
  // engines the stream goes on after the latter, with arrays that hold no results.
  absl::Status Synchronize();

  // Waits for all streams, and clears their errors.
  void Reset();

  // For a collective that the caller makes: adds what this rank sends in it to `sent`, a field of
  // `traffic`, and returns the algorithm that it must take.
  absl::StatusOr<collectives::Algorithm> Count(const collectives::CollectiveSignature& signature,
                                               int64_t& sent, StepGroup role = StepGroup::kShards);

  // OK if all ranks that have the same weights give OK, as collectives::AgreeOnStatus; a call of
  // all of them.
  absl::Status AgreeOnStatus(const absl::Status& mine);

  // On the communication stream. The bytes that this rank sends are added to `sent`, a field of
  // `traffic`.
  // Of gradients: the all-reduce or the reduce-scatter of this signature.
  absl::Status Sum(const collectives::CollectiveSignature& signature, const void* input,
                   void* output);
  absl::Status AllGather(const void* input, void* output, int64_t count, precision::DType dtype,
                         int64_t& sent, StepGroup role = StepGroup::kShards);
  // On the stream between groups, in place: the all-reduce of this signature, of a slice.
  absl::Status SumBetween(const collectives::CollectiveSignature& signature, void* slice);
  // Among the ranks that have second slices of all weights between them.
  absl::Status GatherNear(const void* second, void* whole, int64_t count, precision::DType dtype);
  // With the other group that has the same tied parameter: final gradients, and errors, in place.
  absl::Status SumTied(const collectives::CollectiveSignature& signature, void* data,
                       int64_t& sent);
  // Sums of errors, and the like, in fp32: in the order of ranks.
  absl::Status AddUp(const float* input, float* output, int64_t count, int64_t& sent,
                     StepGroup role = StepGroup::kShards);
  // Of the world: the statistics of a step.
  absl::Status GatherStatistics(const void* own, void* all, int64_t bytes);
  // From rank 0, in place; with several groups, from that of the first one, to all ranks.
  absl::Status Broadcast(void* data, int64_t count, precision::DType dtype, int64_t& sent);

  Traffic traffic;
  Movement movement;

 private:
  StepStreams(const ZeroOptions& options, collectives::Communicator& communicator,
              const OuterGroups& outer, device::Context& context, device::Stream& compute);

  collectives::Communicator& group(StepGroup role) { return GroupOf(role, communicator_, outer_); }

  // How a collective is carried out.
  struct Route {
    collectives::Algorithm algorithm;
    // By this rank.
    int64_t sent_bytes;
  };
  absl::Status GatherIn(collectives::Communicator& group, const void* input, void* output,
                        int64_t count, precision::DType dtype, int64_t& sent);
  // That of an earlier collective of the same signature in this group; else its choice now.
  absl::StatusOr<Route> RouteOf(const collectives::CollectiveSignature& signature,
                                collectives::Communicator& group);

  const ZeroOptions options_;
  collectives::Communicator& communicator_;
  const OuterGroups outer_;
  device::Context& context_;
  device::Stream& compute_;
  // Null without overlap; the second also with one group.
  std::unique_ptr<device::Stream> own_, between_;
  // Null without offload, and where `context_` is a CPU's.
  std::unique_ptr<device::Context> host_context_;
  // Null without offload.
  std::unique_ptr<device::Stream> down_, up_, host_;
  // Null without a file.
  std::unique_ptr<device::Stream> from_file_, to_file_, weights_from_file_, copies_from_file_;
  std::optional<WaitPoint> omitted_;
  // By group, kind, operation, reduction, type and count.
  std::map<std::tuple<const collectives::Communicator*, collectives::CollectiveKind,
                      kernels::ReduceOp, collectives::Reduction, precision::DType, int64_t>,
           Route>
      routes_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_STEP_STREAMS_H_
