#ifndef BRIGADE_ZERO_INTERNAL_HOST_LANE_H_
#define BRIGADE_ZERO_INTERNAL_HOST_LANE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/event.h"
#include "brigade/optim/fused_update.h"
#include "brigade/optim/step_controller.h"
#include "brigade/zero/internal/rank_file.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// The update of the buckets whose optimizer state is on the host or in a file, bucket by bucket
// behind their reductions and ahead of their gathers:
//
//   communication  reduce 0 | reduce 1 | decide                       gather 1 | gather 0
//   to the host               gradient 0 | gradient 1 | decision
//   host                                                update 1 | update 0
//   from the host                                                 weights 1 | weights 0
//
// Of a state in a file each update is one of chunks, which RankFile reads ahead and writes behind.
//
// Traffic      Of the host's memory, 28 bytes per element with AdamW and 16-bit weights: gradient 2
//              and state 12 read, state 12 and weights 2 written.
class HostLane {
 public:
  // Memory and events of the offloaded buckets. `file`: null without one.
  static absl::StatusOr<std::unique_ptr<HostLane>> Create(const Plan& plan,
                                                          const ZeroOptions& options,
                                                          RankFile* file, StepStreams& streams);

  bool IsOffloaded(int bucket) const { return state(bucket).done != nullptr; }

  // Host memory of a bucket's slice: the gradient of a step, of FinalGradientType, in `turns()` of
  // which one follows the other; and the weights as the last update has left them, which go from
  // there to where they are used, null where they go there from elsewhere or need not go. A
  // skipped step writes no weights: they have to be there before.
  int turns() const { return HostTurns(options_); }
  void* Gradient(int bucket, int turn) const { return state(bucket).turns[turn].gradient.data(); }
  void* Weights(int bucket) const { return state(bucket).weights.data(); }

  // How the bucket, or a chunk of the file, is updated, in each turn. With weights that are not
  // rounded, a copy of the master of a chunk follows, unless the step is skipped.
  struct Piece {
    int64_t chunk = -1;
    std::vector<optim::FusedUpdate> updates = {};
    const void* master = nullptr;
    void* weights = nullptr;
    int64_t bytes = 0;
  };
  // How a bucket is updated; then, or with delay_update a step later, `bytes` of `source` are
  // copied to `target`, this rank's slice on the device or the host. Null: nothing is.
  struct Work {
    std::vector<Piece> pieces = {};
    const void* source = nullptr;
    void* target = nullptr;
    int64_t bytes = 0;
  };
  void SetWork(int bucket, Work work) { state(bucket).work = std::move(work); }
  // Recorded when the bucket's new weights are where the work says, or in the file.
  device::Event& done(int bucket) const { return *state(bucket).done; }

  // The communication stream has made the gradient of a bucket: copies it to the host. Records
  // `free`, unless it is null, behind that.
  absl::Status TakeGradient(int bucket, const void* gradient, device::Event* free);
  // The communication stream has decided: enqueues the updates, in the order in which the forward
  // pass uses the buckets. With delay_update, what the update before has left is copied first.
  absl::Status Update(const optim::StepDecision& decision);

  // The communication stream waits until gradients and decision are copied: their memory is free.
  absl::Status AwaitCopies() {
    return streams_.Wait(WaitPoint::kGradientCopied, *copied_, streams_.comm());
  }
  // What the communication stream does from now on comes after all updates enqueued.
  absl::Status Await();
  // Events carry no errors any more. All streams are idle and without an error.
  absl::Status Reset();
  // How many steps the training has made: the next one is delayed, or is not.
  void SetSteps(int64_t steps) { steps_ = steps; }

 private:
  struct BucketState {
    device::Buffer weights;
    // On the communication stream: the gradient is made.
    std::unique_ptr<device::Event> reduced;
    struct Turn {
      device::Buffer gradient;
      // On the host's stream: the gradient is read, and the new weights are written.
      std::unique_ptr<device::Event> updated;
    };
    Turn turns[2];
    // On the stream of the copies to the device, or, without such a copy, on the host's.
    std::unique_ptr<device::Event> done;
    Work work;
  };
  struct Decision {
    // The state, then the groups' numbers.
    device::Buffer copy;
    // On the host's stream: all buckets are updated. With a file on its stream: all is committed.
    std::unique_ptr<device::Event> read;
  };

  HostLane(const Plan& plan, const ZeroOptions& options, RankFile* file, StepStreams& streams)
      : options_(options), file_(file), streams_(streams), states_(plan.buckets().size()) {}

  BucketState& state(int bucket) { return states_[static_cast<size_t>(bucket)]; }
  const BucketState& state(int bucket) const { return states_[static_cast<size_t>(bucket)]; }

  // Whose work it is to bring new weights to where they are used.
  device::Stream& deliverer() {
    if (options_.offload.file_parameters()) return streams_.to_file();
    return options_.offload.host_parameters() ? streams_.host() : streams_.up();
  }
  // Who is the last to need the decision.
  device::Stream& last() { return file_ == nullptr ? streams_.host() : streams_.to_file(); }
  absl::StatusOr<optim::StepDecision> CopyDecision(const optim::StepDecision& decision);
  absl::Status UpdateBucket(size_t bucket, const optim::StepDecision& decision);
  absl::Status UpdateChunk(const Piece& piece, const optim::StepDecision& decision);
  // Copies what the update of that turn has left to where it is used.
  absl::Status Deliver(BucketState& at, int turn);

  const ZeroOptions& options_;
  RankFile* const file_;
  StepStreams& streams_;
  std::vector<BucketState> states_;
  Decision decisions_[2];
  // On the communication stream: the step is decided. On that of the copies to the host: gradients
  // and decision are there.
  std::unique_ptr<device::Event> decided_, copied_;
  int64_t steps_ = 0;
  // Of the step whose gradients come now.
  int turn_ = 0;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_HOST_LANE_H_
