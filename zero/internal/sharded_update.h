#ifndef BRIGADE_ZERO_INTERNAL_SHARDED_UPDATE_H_
#define BRIGADE_ZERO_INTERNAL_SHARDED_UPDATE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_math.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_math.h"
#include "brigade/optim/fused_update.h"
#include "brigade/optim/one_bit_lamb_update.h"
#include "brigade/optim/step_controller.h"
#include "brigade/optim/step_executor.h"
#include "brigade/zero/internal/factored_update.h"
#include "brigade/zero/internal/gradient_exchange.h"
#include "brigade/zero/internal/gradient_store.h"
#include "brigade/zero/internal/host_lane.h"
#include "brigade/zero/internal/matrix_update.h"
#include "brigade/zero/internal/parameter_store.h"
#include "brigade/zero/internal/rank_file.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step_observer.h"

namespace brigade::zero::internal {

// The optimizer state of the elements that this rank updates, and the optimizer step over them: on
// the communication stream, or of offloaded buckets on the host (HostLane).
class ShardedUpdate {
 public:
  // `file`: null without one.
  static absl::StatusOr<std::unique_ptr<ShardedUpdate>> Create(
      const Plan& plan, const ZeroOptions& options, RankFile* file, GradientStore& gradients,
      ParameterStore& parameters, StepStreams& streams);

  // Checks the gradients of this rank's slices, exchanges statistics, decides, and updates. Where
  // gradients are exchanged (GradientStore::phase), with that in between.
  absl::Status Enqueue();

  // Who sees the gradients of the step that begins next, until this is called again; null: nobody.
  void Observe(StepObserver* observer) { observer_ = observer; }

  // What the communication stream does from now on comes after the update.
  absl::Status Await() { return lane_ == nullptr ? absl::OkStatus() : lane_->Await(); }
  // Of local steps, a call of all ranks between steps: all have the same weights and moments then.
  absl::Status Meet();
  // All streams are idle and without an error.
  absl::Status Reset() { return lane_ == nullptr ? absl::OkStatus() : lane_->Reset(); }
  // The state is that of a training which has tried so many steps.
  void SetSteps(int64_t steps) {
    if (lane_ != nullptr) lane_->SetSteps(steps);
  }

  optim::StepController& controller() { return executor_->controller(); }
  const optim::StepController& controller() const { return executor_->controller(); }

  // One of a bucket's arrays, of the elements UpdatedRange: the master (the working weights
  // themselves where they are fp32), then the moments, then what is attached; of fp32 where
  // StateArrayOf says nothing else. Not of a state in a file.
  int arrays() const { return 1 + moments_ + static_cast<int>(attached_.size()); }
  // With those in which errors are saved.
  int saved_arrays() const { return arrays() + ErrorArraysOf(plan_, options_); }
  float* Array(int bucket, int array) const;
  // Arrays of others, [array][bucket], like the moments; without offload.
  void Attach(std::vector<std::vector<float*>> arrays) { attached_ = std::move(arrays); }
  // Enqueues on the communication stream the rounding of a bucket's master, which lies on the
  // device, to its weights.
  absl::Status RoundMasterOnDevice(int bucket);
  // The communication stream has written this rank's slice of a bucket's weights, at setup.
  absl::Status WeightsWritten(int bucket);
  // Sets the weights of an offloaded bucket, this rank's slice, by the master, at setup. Waits.
  absl::Status WeightsFromMaster(int bucket);
  // The first part of it, for elements of the slice whose master the host gives.
  absl::Status RoundMaster(int bucket, ElementRange range, const float* master);
  // Of 1-bit LAMB: the numbers of a bucket's tensors, from the slices of all ranks. A call of all
  // ranks, at setup.
  absl::Status TakeNumbers(int bucket);
  // In device memory; of all tensors that are trained, bucket by bucket.
  absl::Span<kernels::OneBitLambNumbers> numbers() const {
    const int64_t tensors = is_one_bit_lamb() ? LambSizesOf(plan_, options_).tensors : 0;
    return absl::MakeSpan(static_cast<kernels::OneBitLambNumbers*>(numbers_.data()),
                          static_cast<size_t>(tensors));
  }
  // Null where there are no exchanges.
  GradientExchange* exchange() { return exchange_.get(); }
  bool IsOffloaded(int bucket) const { return lane_ != nullptr && lane_->IsOffloaded(bucket); }
  // Whether the master has memory of its own.
  bool HasMaster(int bucket) const {
    return internal::HasMaster(options_, plan_.bucket(bucket), IsOffloaded(bucket));
  }

 private:
  ShardedUpdate(const Plan& plan, const ZeroOptions& options, RankFile* file,
                const GradientStore& gradients, const ParameterStore& parameters,
                StepStreams& streams);

  absl::Status AllocateState();
  bool is_one_bit_lamb() const {
    return options_.optimizer.kind == optim::OptimizerKind::kOneBitLamb;
  }
  // Of 1-bit LAMB: memory of the numbers of tensors, and where they are kept in the state by steps
  // that count. In one that fails ranks may have none of the sums by which scales are made.
  absl::Status AllocateNumbers();
  absl::Status KeepNumbers(const kernels::StepState* state);
  absl::Status AddUpNumbers(int bucket);
  bool is_muon() const { return options_.optimizer.kind == optim::OptimizerKind::kMuon; }
  bool is_adafactor() const { return options_.optimizer.kind == optim::OptimizerKind::kAdafactor; }
  // By what the exchange has made of the gradients, or left.
  absl::Status UpdateExchanged(StepPhase phase);
  // The gradient that the update of a bucket, or of this rank's slice, reads.
  const void* FinalGradient(int bucket) const;
  // Of a slice's gradient the part that this rank checks.
  const void* Checked(int bucket, const void* gradient) const;
  // The weights that the update writes; and null where they are the master.
  void* Weights(int bucket) const;
  void* RoundedWeights(int bucket) const;
  absl::Status TakeGradient(int bucket, const void* gradient, device::Event* free);
  ObservedArray Observed(int bucket, const void* gradient) const;
  // All that are reduced.
  absl::Status ShowGradients();

  // sharded_update_lists.cc.
  std::vector<optim::UpdateList> ListUpdates();
  // Elements of a bucket's UpdatedRange, with their arrays.
  struct Place {
    ElementRange range = {};
    std::vector<float*> arrays = {};
    const void* grad = nullptr;
    void* weights = nullptr;
  };
  Place PlaceInMemory(int bucket, const void* grad) const;
  void AppendSegments(int bucket, const Place& place,
                      std::vector<optim::UpdateSegment>& segments) const;
  // Elements of a bucket from that one on, `size` of them, whose gradient is at `grad`.
  optim::UpdateSegment SegmentOf(int bucket, const Place& place, int64_t element, int64_t size,
                                 const void* grad) const;
  // Of LAMB: the tensors of a bucket, whose sums begin at that tile of each rank's.
  std::vector<kernels::LambTensor> TensorsOf(int bucket, int64_t first_tile) const;
  // Of exchanged gradients, which have no padding.
  absl::Status ListExchangedUpdates();
  // The optimizer in steps that keep second moments.
  optim::OptimizerOptions KeepsVariance() const;
  absl::Status CreateOneBitLamb(const std::vector<optim::UpdateList>& lists);
  // With offload, gradients are checked and go to the host as they are made.
  void ListHostUpdates();
  HostLane::Work WorkOf(int bucket) const;
  HostLane::Piece ChunkOf(int64_t chunk, const optim::UpdateTypes& types) const;

  const Plan& plan_;
  const ZeroOptions& options_;
  RankFile* const file_;
  const ParameterStore& parameters_;
  StepStreams& streams_;
  const int moments_;
  // Of buckets: [master][moments].
  std::vector<device::Buffer> states_;
  std::vector<std::vector<float*>> attached_;
  // Null without offload.
  std::unique_ptr<HostLane> lane_;
  // By bucket that is counted: its place in the executor's lists of gradients.
  std::vector<std::pair<size_t, size_t>> checked_;
  std::unique_ptr<optim::StepExecutor> executor_;
  std::unique_ptr<GradientExchange> exchange_;
  // Of Muon, else null: what the executor does not update.
  std::unique_ptr<MatrixUpdate> matrices_;
  // The same of Adafactor.
  std::unique_ptr<FactoredUpdate> factored_;
  std::vector<optim::FusedUpdate> exchanged_updates_;
  // Of 0/1 Adam: those by exchanged gradients, which read these elements of them, and by this
  // rank's own in local steps.
  std::vector<optim::FusedUpdate> kept_updates_, local_updates_;
  std::vector<kernels::ZeroOneMask> masks_;
  // Of 1-bit LAMB, else null or empty: that instead of these; the numbers of all tensors, which all
  // ranks have; copies from there to the state; and where the sums of tensors lie, before moments
  // are exchanged and then.
  std::unique_ptr<optim::OneBitLambUpdate> one_bit_lamb_;
  device::Buffer numbers_;
  std::vector<kernels::ZeroOneCopy> kept_numbers_;
  std::vector<kernels::LambTensor> tensors_, exchanged_tensors_;
  const GradientStore& gradients_;
  StepObserver* observer_ = nullptr;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_SHARDED_UPDATE_H_
