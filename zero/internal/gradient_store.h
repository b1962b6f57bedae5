#ifndef BRIGADE_ZERO_INTERNAL_GRADIENT_STORE_H_
#define BRIGADE_ZERO_INTERNAL_GRADIENT_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
#include "brigade/collectives/engines/registration.h"
#include "brigade/device/buffer.h"
#include "brigade/device/event.h"
#include "brigade/kernels/fill/fill_math.h"
#include "brigade/zero/internal/buffer_pool.h"
#include "brigade/zero/internal/loco_errors.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step.h"

namespace brigade::zero::internal {

// Gradients from the backward pass to the update: memory for the backward pass to write to, the
// reduction bucket by bucket in the plan's order, the sum over micro-batches, and that of tied
// parameters. Buckets here are Plan::gradients().
class GradientStore {
 public:
  static absl::StatusOr<std::unique_ptr<GradientStore>> Create(const Plan& plan,
                                                               const ZeroOptions& options,
                                                               StepStreams& streams);

  // Calls `take(bucket, gradient, free)` whenever a bucket's FinalSlice, `gradient`, is enqueued on
  // the communication stream. Where such slices have a memory of their own only on their way
  // (KeepsGradients), `free` is to be recorded after its last use; else it is null.
  using TakeGradient =
      std::function<absl::Status(int bucket, const void* gradient, device::Event* free)>;
  void OnFinal(TakeGradient take) { take_ = std::move(take); }

  // So many steps have been tried, skipped ones included.
  void SetTried(int64_t tried) { tried_ = tried; }
  int64_t tried() const { return tried_; }
  // How the gradients of the step that begins now, or has not begun, are those of all ranks: but
  // with kReduced they stay this rank's own, FinalWhole, or its group's, FinalSlice, of
  // FinalGradientType.
  StepPhase phase() const { return PhaseOf(plan_, options_, tried_); }

  // Memory for the unit's part of a gradient in this micro-batch. A gradient that no unit asks for
  // is zero.
  absl::StatusOr<GradientTarget> Target(int unit, int parameter);
  // The unit's parts are enqueued on the compute stream. Reduces the buckets that are complete.
  absl::Status Ready(int unit);

  // FailedPrecondition naming a unit that has asked for a gradient and was not reported ready.
  absl::Status FinishMicroBatch(int chunk);
  int finished_micro_batches(int chunk) const {
    return chunks_[static_cast<size_t>(chunk)].micro_batch;
  }

  // All micro-batches are finished: adds up what tied parameters have in several places, in this
  // group and the other one, so that every FinalSlice is complete; those of the last bucket that
  // groups have summed, too.
  absl::Status Complete();

  // The update has read all gradients.
  absl::Status FinishStep();
  // Errors of codes; null without ZeroOptions::loco.
  LocoErrors* loco() const { return loco_.get(); }
  bool has_errors() const { return loco_ != nullptr && loco_->has_codes(); }

  // Drops the micro-batches so far, and events that carry errors. Both streams are idle and without
  // an error.
  void Reset();

  // The sum over ranks and micro-batches, of FinalGradientType: this rank's slice of a bucket; of
  // its group alone in a step in which groups exchange. Null for one that is not there or on its
  // way.
  void* FinalSlice(int bucket) const;
  // The whole bucket's sum, over micro-batches alone where all ranks exchange; null where a rank
  // has only its slice.
  void* FinalWhole(int bucket) const;

 private:
  struct BucketState {
    // Of a bucket whose gradients stay whole.
    std::unique_ptr<PooledBuffer> own;
    // Where the backward pass writes now: `own`, or a buffer of the pool.
    PooledBuffer* buffer = nullptr;
    // The reduced slice, where it is not a part of `own` or of `accumulator`: memory of its own,
    // or, of an offloaded bucket, a buffer of `slices_` while it is on its way.
    device::Buffer slice;
    PooledBuffer* passing = nullptr;
    // The sum over micro-batches, of the bucket or of the slice.
    device::Buffer accumulator;
    std::unique_ptr<device::Event> written;
    // On the stream between groups: the slice is the sum of all of them. Null with one group.
    std::unique_ptr<device::Event> summed;
    // The number of units that have not been reported ready.
    int unreported = 0;
    // By entry: the parts of the parameter's gradient in this micro-batch.
    struct Parts {
      // The last unit that asked for the gradient.
      int unit = -1;
      // The number of units that have asked.
      int units = 0;
    };
    std::vector<Parts> parts;
    int chunk = 0;
  };
  // A chunk's micro-batch in progress.
  struct Chunk {
    // Trainable buckets in the order in which the backward pass completes them.
    std::vector<int> order;
    // The index in `order` of the bucket that is reduced next.
    size_t next = 0;
    int micro_batch = 0;
  };

  GradientStore(const Plan& plan, const ZeroOptions& options, StepStreams& streams);

  BucketState& state(int bucket) { return states_[static_cast<size_t>(bucket)]; }
  const BucketState& state(int bucket) const { return states_[static_cast<size_t>(bucket)]; }
  const Bucket& bucket(int index) const { return plan_.gradient(index); }
  Chunk& chunk_of(int bucket) { return chunks_[static_cast<size_t>(state(bucket).chunk)]; }
  const Chunk& chunk_of(int bucket) const {
    return chunks_[static_cast<size_t>(state(bucket).chunk)];
  }
  // Whether the bucket's micro-batch in progress is the last one.
  bool IsLast(int bucket) const {
    return chunk_of(bucket).micro_batch + 1 == options_.micro_batches;
  }
  // This rank's slice of an array of the whole bucket.
  void* SliceOf(void* whole, int bucket, precision::DType dtype) const;

  // Tells the communicator of all memory that reductions read and write.
  absl::Status RegisterMemory();
  void StartMicroBatch(int chunk);
  // Whether the step's gradients stay this rank's own.
  bool keeps_own() const { return phase() != StepPhase::kReduced && !streams_.has_shard_groups(); }
  // Gives the bucket memory to write to.
  absl::Status Provide(int bucket);
  bool MayTakeBuffer(int bucket) const;
  // The bucket of this one's size and chunk that is reduced next.
  int FirstOfSize(int bucket) const;
  absl::Status ZeroUnwritten(int bucket);
  // Fills `fills_` with 0.
  absl::Status Fill(precision::DType dtype);
  absl::Status ReduceComplete(Chunk& chunk);
  absl::Status Reduce(int bucket);
  absl::Status ProvideSlice(int bucket);
  absl::Status AddTied();
  // Begins the sum of a slice over groups, and ends it: whoever comes next on the communication
  // stream has all of it.
  absl::Status SumBetween(int bucket);
  absl::Status FinishBetween();
  absl::Status HandOver(int bucket);
  absl::Status ReduceIntoSum(int bucket);
  // A sum over ranks: element i is slice[i] * *unscale.
  struct Reduced {
    void* slice;
    // The bucket, in which `slice` is this rank's. The other slices are sums as well after an
    // all-reduce, and nothing after a reduce-scatter.
    void* whole;
    precision::DType dtype;
    // Device memory; null means 1.
    const float* unscale = nullptr;
  };
  // Reduces a whole bucket, a reduce-scatter into `slice`, also as codes; or, where the wire has
  // another type than the bucket, on the wire.
  absl::StatusOr<Reduced> SumOverRanks(int bucket, void* whole, void* slice);
  // As codes.
  absl::Status SumCodes(int bucket, const void* whole, void* slice);
  // Puts a sum that is complete where the update reads it: the slice, or in stage 0 all slices.
  absl::Status StoreFinal(int bucket, const Reduced& reduced);
  absl::Status Store(int bucket, const Reduced& reduced, const void* source, void* target,
                     int64_t size);
  // To the bucket's sum over micro-batches.
  absl::Status AddToSum(int bucket, const void* source, precision::DType dtype, const float* scale,
                        void* sum, int64_t size);

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  BufferPool pool_, slices_;
  TakeGradient take_;
  int64_t tried_ = 0;
  // Holds one bucket at a time, in the order of the communication stream. Null where all gradients
  // cross the wire in their own type.
  std::unique_ptr<collectives::CompressedReduction> compressed_;
  // Null where gradients are no codes.
  std::unique_ptr<collectives::QuantizedReduceScatter> quantized_;
  std::unique_ptr<LocoErrors> loco_;
  // As compressed_, of sums between groups, on their stream.
  std::unique_ptr<collectives::CompressedReduction> compressed_between_;
  // Recorded on the communication stream: a slice is the sum of this group. Null with one group.
  std::unique_ptr<device::Event> summed_inside_;
  // The bucket whose sum over groups was begun last and has not been ended; -1: none. The next
  // bucket's sum inside the group is enqueued before that, so that the two go on side by side.
  int between_ = -1;
  // By bucket.
  std::vector<BucketState> states_;
  std::vector<Chunk> chunks_;
  // The buckets of which another group has a sum too, by their parameters' names: as it has them.
  std::vector<int> tied_outside_;
  // By unit.
  std::vector<char> reported_, asked_;
  std::vector<kernels::FillSegment> fills_;
  // Last: they end before the memory does.
  std::vector<collectives::Registration> registrations_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_GRADIENT_STORE_H_
