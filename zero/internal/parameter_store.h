#ifndef BRIGADE_ZERO_INTERNAL_PARAMETER_STORE_H_
#define BRIGADE_ZERO_INTERNAL_PARAMETER_STORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/compressed/quantized_all_gather.h"
#include "brigade/collectives/engines/registration.h"
#include "brigade/device/buffer.h"
#include "brigade/device/event.h"
#include "brigade/zero/internal/buffer_pool.h"
#include "brigade/zero/internal/rank_file.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step.h"
#include "brigade/zero/step_observer.h"

namespace brigade::zero::internal {

// The working weights: whole, or as slices that are gathered into pooled buffers for each use.
//
// A bucket is *fresh* while its buffer holds the current weights of all ranks, or a gather on the
// communication stream will have put them there; the event `gathered` says when.
class ParameterStore {
 public:
  // `file`: null without one.
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(const Plan& plan,
                                                                const ZeroOptions& options,
                                                                RankFile* file,
                                                                StepStreams& streams);

  // The compute stream waits until the unit's weights are gathered; the next units of this pass are
  // gathered ahead.
  absl::Status Acquire(int unit, Pass pass);
  // The work that is on the compute stream so far is the unit's last use.
  absl::Status Release(int unit);
  // The next run of options.runs, of this chunk, begins, and ends. Inside it the chunk's weights
  // that do not stay in memory are there, and Acquire gathers nothing. FailedPrecondition for a
  // call, or a unit to acquire, out of turn.
  absl::Status BeginRun(int chunk);
  absl::Status EndRun();
  // How many runs have ended since the last step, and whether one has begun.
  int finished_runs() const { return static_cast<int>(next_run_); }
  bool in_run() const { return in_run_; }
  // After the last run: the next one is the first.
  void FinishRuns() { next_run_ = 0; }

  // FailedPrecondition unless all uses of backward_units are made; and the end of these.
  absl::Status CheckBackwardUses() const;
  void FinishBackward() { next_backward_ = 0; }
  // Releases all units, and drops what is gathered where a later Acquire gathers it again, and
  // events that carry errors. Both streams are idle and without an error.
  absl::Status Reset();

  bool acquired(int unit) const { return acquired_[static_cast<size_t>(unit)] != 0; }
  int acquired_units() const { return acquired_units_; }
  // The weights of a parameter that an acquired unit uses; null if none does.
  void* Data(int parameter) const;

  // This rank's slice of a bucket; null where it is in the file.
  void* Slice(int bucket) const;
  // The whole bucket; null where it does not stay in memory.
  void* Whole(int bucket) const;

  // Calls show(arrays) with what the communication stream sees of all weights from now on: whole
  // buckets where they stay whole, else slices; or slices alone. Slices that are not on the device
  // come there one by one, each in a call of its own, into a buffer that it gives back then: no
  // unit is acquired. What is moved for it is not counted as the step's.
  absl::Status Show(bool slices,
                    absl::FunctionRef<absl::Status(absl::Span<const ObservedArray>)> show);

  // The communication stream has written new weights of all trainable buckets: this rank's slices,
  // or, where every rank updates everything, the whole buckets. Gathers the other ranks' slices, or
  // leaves that to the next Acquire.
  absl::Status GatherUpdated();
  // The same of these buckets alone.
  absl::Status GatherUpdated(absl::Span<const int> buckets);
  // The communication stream has written new weights of a bucket, at setup.
  absl::Status MarkWritten(int bucket);
  // In steps another stream writes this rank's slice of a bucket, and records `written` then.
  void SetWritten(int bucket, device::Event& written) { state(bucket).written = &written; }

 private:
  struct BucketState {
    // Of a bucket that stays whole.
    std::unique_ptr<PooledBuffer> own;
    // Empty where the slice lies in `own`, as in stages 0 to 2, or in the file. On the host with
    // host_parameters.
    device::Buffer slice;
    // Of slices that are not on the device: this one's latest copy is where the gather reads it.
    std::unique_ptr<device::Event> raised;
    // Null: the communication stream writes the slice.
    device::Event* written = nullptr;
    // The memory of the whole bucket now: `own`, or a buffer of the pool, or null.
    PooledBuffer* buffer = nullptr;
    std::unique_ptr<device::Event> gathered;
    bool fresh = false;
    // A second slice of the weights, if there are such; and before which update they were gathered:
    // what it holds is theirs as long as that is `updates_`. -1: nothing.
    device::Buffer second;
    int64_t second_updates = -1;
    // The number of acquired units that use the bucket.
    int users = 0;
    // The run that has begun uses it.
    bool held = false;
  };

  // What a gather is made of: the slices of all ranks that share a state, or, where there are such
  // and weights have not changed since, second slices.
  enum class From : uint8_t { kSlices, kSecondSlices };

  ParameterStore(const Plan& plan, const ZeroOptions& options, RankFile* file,
                 StepStreams& streams);

  BucketState& state(int bucket) { return states_[static_cast<size_t>(bucket)]; }
  const BucketState& state(int bucket) const { return states_[static_cast<size_t>(bucket)]; }
  const Bucket& bucket(int index) const { return plan_.bucket(index); }

  absl::Status Zero(int bucket);
  // Tells the communicator of all memory that gathers read and write.
  absl::Status RegisterMemory();
  absl::Status GatherAndWait(const std::vector<int>& buckets, From from);
  // Gathers the units that come after this one, as far as there is memory.
  absl::Status GatherAhead(int unit, Pass pass);
  // The work that is on the compute stream so far is the last use of the bucket in its buffer.
  absl::Status GiveBack(BucketState& state);
  bool IsInRun(int unit) const;
  // Makes the bucket fresh. If no buffer is left: FailedPrecondition, or OK with `ahead`.
  absl::Status Gather(int bucket, From from, bool ahead);
  // Where a gather of that run's chunk gets weights from.
  From FromOfRun(size_t run) const;
  absl::StatusOr<PooledBuffer*> TakeBuffer(int bucket, bool ahead);
  absl::Status GatherIntoBuffer(int bucket, From from);
  // Of one bucket, by a caller that counts the update.
  absl::Status GatherUpdated(int bucket);
  // The gather from all that share a state, as they are or as codes.
  absl::Status GatherSlices(int bucket, const void* slice, void* whole);
  // Of a bucket that is gathered as codes: what does it; null: it is not.
  collectives::QuantizedAllGather* CodesOf(int bucket) const;
  absl::Status KeepSecondSlice(int bucket);
  // Of Show, for a slice that is not on the device.
  absl::Status ShowRaised(int bucket,
                          absl::FunctionRef<absl::Status(absl::Span<const ObservedArray>)> show);
  // Copies a slice that is not on the device to its place in the buffer.
  absl::Status RaiseSlice(int bucket, PooledBuffer& buffer);
  // Where this rank's slice lies in the buffer of the whole bucket.
  void* PlaceOfSlice(int bucket, PooledBuffer& buffer) const;
  void ReturnBuffer(BucketState& state);

  const Plan& plan_;
  const ZeroOptions& options_;
  RankFile* const file_;
  StepStreams& streams_;
  BufferPool pool_;
  // Of weights that are trained, and of others; null where they are no codes.
  std::unique_ptr<collectives::QuantizedAllGather> codes_, frozen_codes_;
  // How often weights were changed since Create.
  int64_t updates_ = 0;
  // By bucket.
  std::vector<BucketState> states_;
  // By unit.
  std::vector<char> acquired_;
  int acquired_units_ = 0;
  // Of options.backward_units.
  size_t next_backward_ = 0;
  // Of options.runs: the one that has begun, or the next one.
  size_t next_run_ = 0;
  bool in_run_ = false;
  // Last: they end before the memory does.
  std::vector<collectives::Registration> registrations_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_PARAMETER_STORE_H_
