#ifndef BRIGADE_ZERO_INTERNAL_PARAMETER_STORE_H_
#define BRIGADE_ZERO_INTERNAL_PARAMETER_STORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/event.h"
#include "brigade/zero/internal/buffer_pool.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step.h"

namespace brigade::zero::internal {

// The working weights: whole, or as slices that are gathered into slots for each use.
//
// A bucket is *fresh* while its slot holds the current weights of all ranks, or a gather on the
// communication stream will have put them there; `gathered` says when.
class ParameterStore {
 public:
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(const Plan& plan,
                                                                const ZeroOptions& options,
                                                                StepStreams& streams);

  // The compute stream waits until the unit's weights are there; the next units are gathered ahead.
  absl::Status Acquire(int unit, Pass pass);
  // What compute has enqueued so far is the unit's last use.
  absl::Status Release(int unit);
  // Forgets what is acquired or gathered ahead, and events that carry errors. Both streams are idle and in order.
  absl::Status StartAgain();

  bool acquired(int unit) const { return acquired_[static_cast<size_t>(unit)] != 0; }
  int acquired_units() const { return acquired_units_; }
  // The weights of a parameter one of whose units is acquired; null if none is.
  void* Data(int parameter) const;

  // Of a bucket: this rank's slice; and all of it, null where it does not stay.
  void* Slice(int bucket) const;
  void* Whole(int bucket) const;

  // The communication stream has written new slices of trainable buckets (or, where all ranks update
  // everything, all of them): from now on the others' are old.
  absl::Status GatherUpdated();
  // Likewise, of any bucket, at setup.
  absl::Status MarkWritten(int bucket);

 private:
  struct State {
    std::unique_ptr<PooledBuffer> own;  // of a bucket that stays whole
    device::Buffer slice;               // empty where it lies in `own`, as in stages 0 to 2
    PooledBuffer* slot = nullptr;       // where it is whole now
    std::unique_ptr<device::Event> gathered;
    bool fresh = false;
    int users = 0;  // units acquired
  };

  ParameterStore(const Plan& plan, const ZeroOptions& options, StepStreams& streams);

  State& state(int bucket) { return states_[static_cast<size_t>(bucket)]; }
  const State& state(int bucket) const { return states_[static_cast<size_t>(bucket)]; }
  const Bucket& bucket(int index) const { return plan_.bucket(index); }

  absl::Status Zero(int bucket);
  absl::Status GatherAndWait(const std::vector<int>& buckets);
  // Makes it fresh. ResourceExhausted if no slot is left; `ahead`: OK then.
  absl::Status Gather(int bucket, bool ahead);
  PooledBuffer* TakeSlot(int bucket, bool ahead);
  absl::Status GatherIntoSlot(int bucket);
  void Drop(State& state);

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  BufferPool pool_;
  std::vector<State> states_;   // of buckets
  std::vector<char> acquired_;  // of units
  int acquired_units_ = 0;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_PARAMETER_STORE_H_
