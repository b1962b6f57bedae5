#ifndef BRIGADE_ZERO_INTERNAL_GRADIENT_EXCHANGE_H_
#define BRIGADE_ZERO_INTERNAL_GRADIENT_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/power_sgd_all_reduce.h"
#include "brigade/collectives/compressed/top_k_all_reduce.h"
#include "brigade/device/buffer.h"
#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_math.h"
#include "brigade/optim/step_controller.h"
#include "brigade/optim/step_executor.h"
#include "brigade/zero/internal/gradient_store.h"
#include "brigade/zero/internal/saved_errors.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/exchange_layout.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero::internal {

// From each rank's own gradients to the mean of all ranks' in fp32, in fewer bytes, with the errors
// that exchanges leave (CompressionOptions). On the communication stream, in Step: nothing waits on
// the host.
//
// With several groups that share a state each, from what a group has summed to the mean of groups:
// the ranks that have the same slice exchange it. Where every rank updates all, means are then
// gathered in the group.
//
// Of 1-bit Adam and 1-bit LAMB the same with first moments: from that of all ranks and each one's
// own gradients to the mean of these sums, of LAMB times a scale of each tensor on the way. Where a
// stage has slices of moments, the whole ones lie here too, in the elements' order of an exchange;
// the slices are those of the state.
//
// Of 0/1 Adam gradients are exchanged in some steps, and from var_freeze_step on, when errors begin
// with zero, what first moments have moved. A meeting that follows steps alone begins with the
// weights of the last one, which every rank keeps.
//
// Two decisions are made of the same statistics, with the same result but for failures. The first
// one says by what to multiply gradients, and whether errors move at all. The second one comes
// behind the last exchange, so that a communicator that fails in one of them skips the step, and
// leaves masters and moments as they were.
class GradientExchange final : public SavedErrors {
 public:
  static absl::StatusOr<std::unique_ptr<GradientExchange>> Create(const Plan& plan,
                                                                  const ZeroOptions& options,
                                                                  const GradientStore& gradients,
                                                                  StepStreams& streams);

  // Of 1-bit LAMB: those of all tensors, device memory that outlives this; before SetMoments.
  void SetNumbers(absl::Span<kernels::OneBitLambNumbers> numbers) { numbers_ = numbers; }

  // Where moments are exchanged: what of a bucket this rank updates, UpdatedRange of master and
  // moments, before the first step.
  void SetMoments(int bucket, float* param, float* first, float* second) {
    BucketMemory& of = memory_[static_cast<size_t>(bucket)];
    of.param = param, of.first = first, of.second = second;
    ListCopies(bucket);
  }
  // The state is another one, the same on all ranks: the next exchange begins with its moments.
  void StateChanged() { has_moments_ = false; }
  // A step may not have been taken: so many have been tried. Where there are local steps the state
  // stays this rank's own.
  void Cancelled(int64_t tried) {
    if (!options_.has_local_steps() || tried <= moments_taken_in_) StateChanged();
  }

  // Checks this rank's gradients and what is added to them, decides with all ranks, and exchanges
  // each bucket in a phase that does. `freeze` is called before the first exchange of moments, and
  // of those behind a change of the state, when second moments are frozen. `tried`: the steps
  // before.
  absl::Status Enqueue(optim::StepController& controller, StepPhase phase, int64_t tried,
                       absl::FunctionRef<absl::Status()> freeze);
  // What the update follows then. In an exchange gradients are unscaled and clipped.
  const optim::StepDecision& decision() const { return decision_; }
  // Behind the update: of local steps what it has moved, or that ranks have met.
  absl::Status Finish(StepPhase phase);

  // Of local steps, a call of all ranks between steps, before the update of a meeting and Finish:
  // what ranks have moved crosses as it is. Nothing changes where there is nothing.
  absl::Status MeetExactly();
  // Whether there may be something.
  bool has_moves() const { return options_.has_local_steps() && has_moments_; }
  // The weights are those of the last meeting again.
  absl::Status ForgetMoves();

  // The mean of a bucket's gradients, or first moments: MeanPieces.
  const float* Mean(int bucket) const { return memory(bucket).mean.as<float>().data(); }

  // The same memory, of MeanElements, which nobody reads between steps.
  float* Scratch(int bucket) const { return memory(bucket).mean.as<float>().data(); }

  // The two arrays of a bucket's ErrorLayout.
  struct Errors {
    float* own;
    float* second;
  };
  Errors ErrorsOf(int bucket) const {
    return {memory(bucket).own_errors.as<float>().data(),
            memory(bucket).second_errors.as<float>().data()};
  }
  // Of local steps, with exchanges of moments: what a bucket's elements have moved since the last
  // meeting, and its weights, of as many elements as the bucket.
  const float* MovesOf(int bucket) const { return memory(bucket).moved.as<float>().data(); }
  const float* AgreedOf(int bucket) const { return memory(bucket).agreed.as<float>().data(); }

  // With the numbers of tensors.
  absl::Status ClearErrors() override;

  // Array 0 is the mean over ranks of their own errors, array 1 the second errors, where the pieces
  // of ErrorLayout say; all else is 0. Where an error is that of a node's sum, the mean is its sum
  // over nodes divided by all ranks, so that either number of hops goes on from the other's.
  float* Slice(int bucket, int array) const override {
    const BucketMemory& of = memory(bucket);
    return of.slices.as<float>().data() + array * plan_.slice(plan_.bucket(bucket));
  }
  // Each rank's own errors become the mean of all that have errors of these elements.
  absl::Status Share() override;
  absl::Status TakeShared(int bucket) override;

 private:
  // Of the entries of a group of parameters: to the sum of a rank.
  struct Terms {
    int group = 0;
    std::vector<kernels::CastSegment> gradient = {};
    std::vector<kernels::CastSegment> momentum = {};
    // Of local steps: from first moments to what they move.
    std::vector<kernels::CastSegment> moves = {};
  };
  struct BucketMemory {
    device::Buffer mean, own_errors, second_errors, slices;
    // Of what each step does, so that it computes nothing.
    ErrorLayout layout;
    absl::InlinedVector<StepCollective, 4> calls;
    int64_t elements = 0, top_k = 0;
    collectives::PowerSgdAllReduce* factors = nullptr;
    // Null or empty where nobody exchanges moments; and in stage 0, where `first` is all of it.
    device::Buffer momentum;
    float* param = nullptr;
    float* first = nullptr;
    float* second = nullptr;
    std::vector<Terms> terms;
    std::vector<kernels::OneBitLambMessage> messages;
    std::vector<kernels::ZeroOneMessage> moments;
    // Of local steps: the sums of moves since the last meeting, and its weights.
    device::Buffer moved, agreed;
    // From errors, and gathered ones, to each of the slices.
    std::array<std::vector<kernels::CastSegment>, kErrorArrays> shared;
    // From errors of what crosses as it is to what is exchanged; and back to 0.
    std::vector<kernels::CastSegment> plain;
    std::vector<kernels::ZeroOneCopy> plain_sent;
  };

  GradientExchange(const Plan& plan, const ZeroOptions& options, const GradientStore& gradients,
                   StepStreams& streams);

  const BucketMemory& memory(int bucket) const { return memory_[static_cast<size_t>(bucket)]; }
  kernels::StepState* state() const { return state_.as<kernels::StepState>().data(); }
  kernels::ZeroOneNumbers* rates() const {
    return static_cast<kernels::ZeroOneNumbers*>(rates_.data());
  }
  kernels::GroupStep* meeting() const {
    return reinterpret_cast<kernels::GroupStep*>(rates() + options_.optimizer.groups.size());
  }
  absl::Status Check(optim::StepController& controller, StepPhase phase);
  // What is too large to be exchanged is not finite in this rank's statistics.
  absl::Status Limit(absl::Span<kernels::GradStats> own, const kernels::StepState* state,
                     StepPhase phase);
  absl::Status Unscale(int bucket);
  absl::Status TakeMoments(int bucket);
  absl::Status ClearMoves(int bucket);
  absl::Status CountRates(kernels::ZeroOneCall call, const kernels::GroupStep* group_steps);
  // Of a meeting: the mean of moves is that of moments, and weights are those before the moves.
  absl::Status ReceiveMoments(kernels::ZeroOneCall call, const kernels::GroupStep* group_steps);
  // This rank's sum, where the mean is to be; and the mean, if the step is not skipped.
  absl::Status AddToMomentum(int bucket);
  // Of 1-bit LAMB, whose tensors have scales.
  absl::Status SendMomentum(int bucket);
  absl::Status KeepMomentum(int bucket);
  absl::Status ExchangeBucket(int bucket);
  absl::Status ExchangeOwn(int bucket);
  // Where what this rank exchanges of a bucket lies.
  float* Exchanged(int bucket) const {
    return memory(bucket).mean.as<float>().data() +
           MeanBegin(plan_, options_, plan_.bucket(bucket), streams_.rank());
  }
  // This rank among those that exchange, and who these are.
  int exchanging_rank() const {
    return streams_.has_shard_groups() ? streams_.shard_group() : streams_.rank();
  }
  StepGroup exchanging() const {
    return streams_.has_shard_groups() ? StepGroup::kBetween : StepGroup::kShards;
  }
  absl::Status CreateExchanges();
  // What of the pieces is in this rank's slice, counted from its begin.
  std::vector<ErrorPiece> InSlice(int bucket, const std::vector<ErrorPiece>& pieces) const;
  absl::Status ShareOwn(int bucket);
  // Of what each step copies, so that it lists nothing.
  void ListCopies(int bucket);
  absl::Status Copy(absl::Span<const kernels::CastSegment> segments, const float* scale = nullptr);

  const Plan& plan_;
  const ZeroOptions& options_;
  const GradientStore& gradients_;
  StepStreams& streams_;
  const optim::StepDivisors divisors_;
  const std::vector<optim::GradientList> checked_;
  // By bucket.
  std::vector<BucketMemory> memory_;
  // Those of the method that there is; of matrices in the place of FirstOfTheseTensors.
  std::unique_ptr<collectives::OneBitAllReduce> signs_;
  std::unique_ptr<collectives::TopKAllReduce> greatest_;
  std::vector<std::unique_ptr<collectives::PowerSgdAllReduce>> factors_;
  // Of all lists' tiles, one after the other; then of what is added to gradients.
  device::Buffer tile_sums_;
  // What is added in an exchange of gradients, and in one of moments, once there has been one; and
  // its statistics.
  std::vector<kernels::GradSegment> added_to_gradients_, added_to_moments_;
  device::Buffer added_stats_;
  // The first decision, then the second one as the update reads it.
  device::Buffer state_, group_steps_;
  // 1 / ranks; and the ranks of whose sum an error is: in two hops those of a node, else 1.
  device::Buffer factors_of_means_;
  // By group: beta1, 1 - beta1, and that times what unscales and clips a step's gradients.
  device::Buffer betas_;
  absl::Span<kernels::OneBitLambNumbers> numbers_;
  // Of 0/1 Adam: of each group, and behind them the step that a meeting's update reads.
  device::Buffer rates_;
  optim::StepDecision decision_ = {};
  const std::vector<kernels::LambGroup> lamb_groups_;
  bool has_moments_ = false;
  // The steps tried before the one that has begun with them.
  int64_t moments_taken_in_ = 0;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_GRADIENT_EXCHANGE_H_
