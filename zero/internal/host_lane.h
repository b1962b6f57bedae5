#ifndef BRIGADE_ZERO_INTERNAL_HOST_LANE_H_
#define BRIGADE_ZERO_INTERNAL_HOST_LANE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/event.h"
#include "brigade/optim/fused_update.h"
#include "brigade/optim/step_controller.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// The update of the buckets whose optimizer state is on the host, bucket by bucket behind their
// reductions and ahead of their gathers:
//
//   communication  reduce 0 | reduce 1 | decide                       gather 1 | gather 0
//   to the host               gradient 0 | gradient 1 | decision
//   host                                                update 1 | update 0
//   from the host                                                 weights 1 | weights 0
//
// Traffic      Of the host's memory, 28 bytes per element with AdamW and 16-bit weights: gradient 2
//              and state 12 read, state 12 and weights 2 written.
class HostLane {
 public:
  // Memory and events of the offloaded buckets.
  static absl::StatusOr<std::unique_ptr<HostLane>> Create(const Plan& plan,
                                                          const ZeroOptions& options,
                                                          StepStreams& streams);

  bool IsOffloaded(int bucket) const { return state(bucket).done != nullptr; }

  // Host memory of a bucket's slice: the gradient, of FinalGradientType; and the weights as the
  // last update has left them, which go from there to the device, null where they go there from the
  // master or do not go there. A skipped step writes no weights: they have to be there before.
  void* Gradient(int bucket) const { return state(bucket).gradient.data(); }
  void* Weights(int bucket) const { return state(bucket).weights.data(); }

  // How a bucket is updated; then `bytes` of `source` are copied to `target` on the device. Null:
  // nothing is.
  struct Work {
    optim::FusedUpdate update;
    const void* source = nullptr;
    void* target = nullptr;
    int64_t bytes = 0;
  };
  void SetWork(int bucket, Work work) { state(bucket).work.emplace(std::move(work)); }
  // Recorded when the bucket's new weights are where the work says.
  device::Event& done(int bucket) const { return *state(bucket).done; }

  // The communication stream has made the gradient of a bucket: copies it to the host. Records
  // `free`, unless it is null, behind that.
  absl::Status TakeGradient(int bucket, const void* gradient, device::Event* free);
  // The communication stream has decided: enqueues the updates, in the order in which the forward
  // pass uses the buckets.
  absl::Status Update(const optim::StepDecision& decision);

  // The communication stream waits until gradients and decision are copied: their memory is free.
  absl::Status AwaitCopies() {
    return streams_.Wait(WaitPoint::kGradientCopied, *copied_, streams_.comm());
  }
  // What the communication stream does from now on comes after all updates enqueued.
  absl::Status Await();
  // Events carry no errors any more. All streams are idle and without an error.
  absl::Status Reset();

 private:
  struct BucketState {
    device::Buffer gradient, weights;
    // On the communication stream: the gradient is made. On the host's: it is read, and the new
    // weights are written.
    std::unique_ptr<device::Event> reduced, updated;
    // On the stream of the copies to the device, or, without such a copy, on the host's.
    std::unique_ptr<device::Event> done;
    std::optional<Work> work;
  };

  HostLane(const Plan& plan, const ZeroOptions& options, StepStreams& streams)
      : plan_(plan), options_(options), streams_(streams), states_(plan.buckets().size()) {}

  BucketState& state(int bucket) { return states_[static_cast<size_t>(bucket)]; }
  const BucketState& state(int bucket) const { return states_[static_cast<size_t>(bucket)]; }

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  std::vector<BucketState> states_;
  // The decision's copy: the state, then the groups' numbers.
  device::Buffer decision_;
  // On the communication stream: the step is decided. On that of the copies to the host: gradients
  // and decision are there. On the host's: all buckets are updated.
  std::unique_ptr<device::Event> decided_, copied_, at_rest_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_HOST_LANE_H_
