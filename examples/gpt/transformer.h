#ifndef BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_
#define BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/block_layout.h"
#include "brigade/examples/gpt/layers.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/pass_collectives.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/nn/dropout.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/pointwise.h"
#include "brigade/nn/texts.h"
#include "brigade/parallel/pipeline/stage_module.h"
#include "brigade/recompute/schedule.h"
#include "brigade/recompute/stash.h"
#include "brigade/train/times/pass_times.h"
#include "brigade/zero/step.h"

namespace brigade::gpt {

// The forward and backward passes of a rank's part of the model, on a rank alone or on ranks that
// share the model's tensor shards, the rows between its products, and texts (PassShape). Calls are
// about one chunk and one micro-batch, of which several are in flight: a StagePass says which chunk
// and which of the slots of memory, and has the arrays at the chunk's ends. Of the whole model a
// default one says all.
//
// The weights come from, and the gradients go to, a zero::ParameterSource with the units of SpecOf
// of the part; it must expect backward passes to use them in the order of PartPlan::BackwardUnits.
// A unit's gradients are complete after its backward pass, or after its gradients of weights, which
// use no weights and acquire nothing.
//
// Precision    Weights, activations and their gradients are of the shape's type; losses are float
//              (double for float64).
// Ranks        All of a group make the same calls. Those of the tensor group have the same texts:
//              they get the same losses, the gradients of their parts of the weights, and of what
//              all have whole the same gradients. Those of the context group have their positions
//              of the same texts, and gradients of these, of which the mean is that of all.
// Boundaries   Arrays at the chunks' ends are [own rows, width] of the shape's type. The gradient
//              of the residual stream is pass.input_gradient from the beginning, to which what is
//              in pass.output_gradient is copied; in the model's first part it is
//              pass.output_gradient, which BackwardInput writes over too.
// Memory       Activations and their gradients: ActivationBytes (part_plan.h), of purpose
//              activations; the workspaces of matrix products (Blas::ScratchBytes of
//              Layers::WorkspaceBytes) and of layers (layers().bytes()), scratch; the
//              communicators' workspaces (CollectivesOfPasses). On the host, for schedules on two
//              tiers, what they write: Stash::HostBytes for each slot of activations. All of it at
//              Create.
// Traffic      CollectivesOfPasses.
// Stream       Enqueued on the one stream given to all calls; allocates nothing, never waits.
//              Copies to the host and back run on another (recompute::Stash), also those of a
//              forward pass that no backward pass follows.
// Dropout      As in GPT-2, of the embedding's output and of what attention and MLP of each block
//              add to the residual stream; attention's probabilities, which are nowhere in memory,
//              have none. Masks are made again wherever they are needed, and take no memory. With a
//              probability of 0 nothing is enqueued for them.
// Determinism  The same bits with every schedule, every cut into chunks, with a split backward pass
//              and with dropout too; and on the CPU for any number of ranks that share the tensor
//              shards (parallel/README.md). Only where a source adds up in place what two passes
//              give for a norm, or for a bias of a row product, a split pass in 16 bits adds what
//              is rounded already. Masks of dropout do not depend on these; ranks that share texts
//              have masks of their own.
// Tracing      Which part of a pass the stream is in, by marks (pass_times.h), with the model's
//              numbers of stages.
// Errors       Create: InvalidArgument naming the option; those of Blas and Stash. Passes:
//              InvalidArgument naming what a StagePass lacks or has no memory for.
class Transformer {
 public:
  // `groups`: of as many ranks as the shape says. `stash_file`: what schedules write goes to files
  // there, one for each slot of activations, instead of to the host.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(
      const PassShape& shape, PartPlan plan, device::Context& context,
      const PassGroups& groups = {}, const device::FileOptions* stash_file = nullptr);

  const PassShape& shape() const { return shape_; }
  const Layers& layers() const { return *layers_; }
  const PartPlan& plan() const { return plan_; }

  // One for each slot of activations; none where the schedules write nothing.
  const std::vector<std::unique_ptr<recompute::Stash>>& stashes() const { return stashes_; }
  // Of all of them.
  recompute::StashMovement stashed() const;

  // Texts of this rank's positions, which only the model's first and last part read. losses [rows],
  // device memory: the cross entropy of each position, in nats; of the last part alone.
  // `dropout`: its first_element is the index of the texts' first element in the residual stream of
  // the step's whole batch; its layer does not count, each place has its own number.
  absl::Status Forward(const parallel::StagePass& pass, const nn::Texts& texts, void* losses,
                       const nn::DropoutMask& dropout, zero::ParameterSource& parameters,
                       device::Stream& stream);

  // The gradient of seed * (mean of the losses of the Forward with these slots); `seed` [1] is
  // device memory, which only the last part reads. Once for each Forward, of the same texts and
  // dropout: it overwrites the activations.
  absl::Status Backward(const parallel::StagePass& pass, const nn::Texts& texts, const float* seed,
                        const nn::DropoutMask& dropout, zero::ParameterSource& parameters,
                        device::Stream& stream);
  // Its halves, in this order, of a plan that splits backward passes.
  absl::Status BackwardInput(const parallel::StagePass& pass, const nn::Texts& texts,
                             const float* seed, const nn::DropoutMask& dropout,
                             zero::ParameterSource& parameters, device::Stream& stream);
  absl::Status BackwardWeight(const parallel::StagePass& pass, const nn::Texts& texts,
                              zero::ParameterSource& parameters, device::Stream& stream);

 private:
  enum class Kind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

  // What a pass was called with.
  struct Call {
    Kind kind;
    const parallel::StagePass& pass;
    const nn::Texts& texts;
    const nn::DropoutMask& dropout;
    // Of the forward pass.
    void* losses = nullptr;
    // Of the backward pass.
    const float* seed = nullptr;
    zero::ParameterSource& parameters;
    device::Stream& stream;
    // Of the backward pass: the residual stream's, where each stage leaves that of its input.
    void* dx = nullptr;

    bool computes_inputs() const { return kind != Kind::kBackwardWeight; }
    bool computes_weights() const { return kind != Kind::kBackwardInput; }
    train::PassPart part() const {
      switch (kind) {
        case Kind::kForward:
          return train::PassPart::kForward;
        case Kind::kBackward:
          return train::PassPart::kBackward;
        case Kind::kBackwardInput:
          return train::PassPart::kBackwardInput;
        default:
          return train::PassPart::kBackwardWeight;
      }
    }
  };

  // A stage's weights and the targets of its gradients, by the model's numbers of parameters.
  class StageUnit {
   public:
    // `scope` is null where no weights are used; they are null then.
    StageUnit(const ModelPart& part, const Call& call, int unit, zero::UnitScope* scope)
        : part_(part), source_(call.parameters), unit_(unit), scope_(scope) {}

    const void* weights(int parameter) {
      return scope_ == nullptr ? nullptr : scope_->weights(part_.ParameterOf(parameter));
    }
    nn::Gradient gradient(int parameter);
    // The first error of the look-ups so far.
    absl::Status status() const;

   private:
    const ModelPart& part_;
    zero::ParameterSource& source_;
    const int unit_;
    zero::UnitScope* const scope_;
    absl::Status status_;
  };

  Transformer(const PassShape& shape, PartPlan plan)
      : shape_(shape),
        plan_(std::move(plan)),
        layout_(shape, {.splits_backward = plan_.slots.splits_backward()}),
        last_layout_(shape,
                     {.saves_output = false, .splits_backward = plan_.slots.splits_backward()}) {}

  int64_t width() const { return shape_.model.width; }
  // The residual stream.
  nn::MatrixShape Residual() const { return {shape_.dtype, shape_.own_rows(), width()}; }
  nn::LayerNormInput NormOf(const void* x, const void* weight, void* mean, void* inverse) const {
    return {shape_.dtype, x, weight, mean, inverse, shape_.own_rows(), width()};
  }

  // Dropout of the residual stream's rows that this rank has, in place: y = dropout(x), and +
  // residual unless it is null; and its gradient.
  absl::Status Dropout(const Call& call, uint32_t place, void* x, const void* residual);
  absl::Status DropoutBackward(const Call& call, uint32_t place, const void* dy, void* dx);
  // Calls visit(mask, offset in bytes, elements) for those of this rank's rows that are neighbours
  // in the texts.
  absl::Status ForEachMask(
      const Call& call, uint32_t place,
      absl::FunctionRef<absl::Status(const nn::DropoutMask&, int64_t, int64_t)> visit) const;
  // x = dropout(x + bias) + residual.
  absl::Status AddBranch(const Call& call, uint32_t place, const void* bias, const void* residual,
                         void* x);
  // The gradient of the sum x + bias in AddBranch, from that of its result. `deferred` gets it if
  // the pass is a half, and has it in the other half. Else it is call.dx itself without dropout, or
  // in `memory`.
  absl::StatusOr<const void*> BranchGradient(const Call& call, uint32_t place, void* memory,
                                             void* deferred);

  // Where the gradients of parameters that see own rows go: to `targets`, or in a half of the
  // backward pass to `deferred`, one width each; and from there to the targets in the other half.
  void DeferRowGradients(const Call& call, void* deferred, absl::Span<nn::Gradient> targets) const;
  absl::Status DeliverRowGradients(const Call& call, const void* deferred,
                                   absl::Span<const nn::Gradient> targets) const;

  const recompute::Schedule& ScheduleOf(const Call& call) const {
    return plan_.schedules[static_cast<size_t>(call.pass.chunk)];
  }
  const StageRange& StagesOf(const Call& call) const {
    return plan_.part.chunks()[static_cast<size_t>(call.pass.chunk)];
  }
  bool BeginsModel(const Call& call) const { return StagesOf(call).first == 0; }
  bool EndsModel(const Call& call) const {
    return StagesOf(call).end == gpt::StagesOf(shape_.model);
  }
  // The stage of the model, and whether it is the last of a chunk whose output is the caller's.
  int StageOf(const recompute::PlacedOperation& placed, const Call& call) const {
    return StagesOf(call).first + placed.operation.stage;
  }
  bool WritesOutput(const recompute::PlacedOperation& placed, const Call& call) const {
    return StageOf(placed, call) + 1 == StagesOf(call).end && !EndsModel(call);
  }
  // It stands for what follows the chunk elsewhere.
  bool IsElsewhere(const recompute::PlacedOperation& placed, const Call& call) const {
    return StageOf(placed, call) >= StagesOf(call).end;
  }

  // In the regions of a schedule.
  char* At(const Call& call, int64_t offset);
  // Null for kElsewhere.
  char* AtIfAny(const Call& call, int64_t offset) {
    return offset == recompute::PlacedOperation::kElsewhere ? nullptr : At(call, offset);
  }
  const void* InputOf(const recompute::PlacedOperation& placed, const Call& call);
  // Null for an output that is not made again.
  void* OutputOf(const recompute::PlacedOperation& placed, const Call& call);
  const BlockLayout& LayoutOf(const recompute::PlacedOperation& placed, const Call& call) const {
    return WritesOutput(placed, call) ? last_layout_ : layout_;
  }

  absl::Status Check(const Call& call) const;
  recompute::Stash* StashOf(const Call& call) {
    return stashes_.empty() ? nullptr : stashes_[static_cast<size_t>(call.pass.activations)].get();
  }
  // What an earlier forward pass copies to the host may lie where this pass writes.
  absl::Status AwaitCopies(const Call& call);
  // The whole backward pass or the gradients of inputs.
  absl::Status RunBackward(Call call);

  // One operation of the schedule that computes nothing.
  absl::Status Move(const recompute::PlacedOperation& placed, const Call& call);
  // One that does, with its marks; `unit` is its stage's.
  absl::Status Run(const recompute::PlacedOperation& placed, const Call& call,
                   zero::UnitScope* scope);
  absl::Status Compute(const recompute::PlacedOperation& placed, const Call& call, StageUnit& unit);
  absl::Status ForwardEmbedding(const recompute::PlacedOperation& placed, const Call& call,
                                StageUnit& unit);
  absl::Status ForwardHead(const recompute::PlacedOperation& placed, const Call& call,
                           StageUnit& unit);
  absl::Status BackwardEmbedding(const recompute::PlacedOperation& placed, const Call& call,
                                 StageUnit& unit);
  absl::Status BackwardHead(const recompute::PlacedOperation& placed, const Call& call,
                            StageUnit& unit);
  absl::Status ForwardBlock(int64_t layer, const void* x, const BlockMemory& memory,
                            const Call& call, StageUnit& unit);
  absl::Status BackwardBlock(int64_t layer, const BlockSaveOption& option, const void* x,
                             const BlockMemory& memory, const Call& call, StageUnit& unit);

  const PassShape shape_;
  const PartPlan plan_;
  // Of blocks, and of those whose output is the caller's.
  const BlockLayout layout_, last_layout_;
  // The arena, the gradient of the residual stream if it is ours, slots of activations, deferred
  // slots.
  device::Buffer memory_;
  std::unique_ptr<Layers> layers_;
  std::vector<std::unique_ptr<recompute::Stash>> stashes_;
  // Of the last forward pass.
  recompute::Stash* copying_ = nullptr;
};

// Where there is dropout, by the layer of its mask: of the embedding's output, and of what each
// block's attention and MLP add to the residual stream.
inline constexpr uint32_t kEmbeddingPlace = 0;
inline uint32_t AttentionPlace(int64_t layer) { return static_cast<uint32_t>(2 * layer + 1); }
inline uint32_t MlpPlace(int64_t layer) { return static_cast<uint32_t>(2 * layer + 2); }

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_
