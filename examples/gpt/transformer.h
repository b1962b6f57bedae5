#ifndef BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_
#define BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/block_layout.h"
#include "brigade/examples/gpt/layers.h"
#include "brigade/examples/gpt/pass_collectives.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/nn/dropout.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/pointwise.h"
#include "brigade/nn/texts.h"
#include "brigade/recompute/schedule.h"
#include "brigade/recompute/stash.h"
#include "brigade/zero/step.h"

namespace brigade::gpt {

// The model's forward and backward pass over a micro-batch, on a rank alone or on ranks that share
// the model's tensor shards, the rows between its products, and texts (PassShape). The weights come
// from, and the gradients go to, a zero::ParameterSource with the units of SpecOf; it must expect
// the backward pass to use them in the order of Schedule::BackwardUses.
//
// Precision    Weights, activations and their gradients are of the shape's type; losses are float
//              (double for float64).
// Ranks        All of a group make the same calls. Those of the tensor group have the same texts:
//              they get the same losses, the gradients of their parts of the weights, and of what
//              all have whole the same gradients. Those of the context group have their positions
//              of the same texts, and gradients of these, of which the mean is that of all.
// Memory       Activations and their gradients: ActivationBytes, of purpose activations; the
//              workspaces of matrix products (Blas::ScratchBytes of Layers::WorkspaceBytes) and of
//              layers (layers().bytes()), scratch; the communicators' workspaces
//              (WorkspaceOfPasses). On the host, for a schedule on two tiers, what it writes:
//              Stash::HostBytes. All of it at Create.
// Traffic      SentInPasses.
// Stream       Enqueued on the one stream given to all calls; allocates nothing, never waits.
//              Copies to the host and back run on another (recompute::Stash), also those of a
//              forward pass that no backward pass follows.
// Dropout      As in GPT-2, of the embedding's output and of what attention and MLP of each block
//              add to the residual stream; attention's probabilities, which are nowhere in memory,
//              have none. Masks are made again wherever they are needed, and take no memory. With a
//              probability of 0 nothing is enqueued for them.
// Determinism  The same bits with every schedule, with dropout too; and on the CPU for any number
//              of ranks that share the tensor shards (parallel/README.md). Masks of dropout do not
//              depend on these; ranks that share texts have masks of their own.
// Tracing      Which part of a pass the stream is in, by marks (pass_times.h).
// Errors       Create: InvalidArgument naming the option; those of Blas and Stash.
class Transformer {
 public:
  // `schedule`: of ActivationChain of the same shape. `groups`: of as many ranks as the shape says.
  // `stash_file`: what the schedule writes goes there, instead of to the host.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(
      const PassShape& shape, recompute::Schedule schedule, device::Context& context,
      const PassGroups& groups = {}, const device::FileOptions* stash_file = nullptr);

  static int64_t ActivationBytes(const PassShape& shape, const recompute::Schedule& schedule);

  const Layers& layers() const { return *layers_; }

  // Null where the schedule writes nothing.
  const recompute::Stash* stash() const { return stash_.get(); }

  // Texts of this rank's positions. losses [rows], device memory: the cross entropy of each
  // position, in nats.
  // `dropout`: its first_element is the index of the texts' first element in the residual stream of
  // the step's whole batch; its layer does not count, each place has its own number.
  absl::Status Forward(const nn::Texts& texts, void* losses, const nn::DropoutMask& dropout,
                       zero::ParameterSource& parameters, device::Stream& stream);

  // The gradient of seed * (mean of the last Forward's losses); `seed` [1] is device memory. Once
  // for each Forward, of the same texts and dropout: it overwrites the activations.
  absl::Status Backward(const nn::Texts& texts, const float* seed, const nn::DropoutMask& dropout,
                        zero::ParameterSource& parameters, device::Stream& stream);

 private:
  // What a pass was called with.
  struct Call {
    const nn::Texts& texts;
    const nn::DropoutMask& dropout;
    // Of the forward pass.
    void* losses = nullptr;
    // Of the backward pass.
    const float* seed = nullptr;
    device::Stream& stream;

    bool is_backward() const { return seed != nullptr; }
  };

  Transformer(const PassShape& shape, recompute::Schedule schedule)
      : shape_(shape), schedule_(std::move(schedule)), layout_(shape) {}

  int64_t width() const { return shape_.model.width; }
  // The residual stream.
  nn::MatrixShape Residual() const { return {shape_.dtype, shape_.own_rows(), width()}; }
  nn::LayerNormInput NormOf(const void* x, const void* weight, void* mean, void* inverse) const {
    return {shape_.dtype, x, weight, mean, inverse, shape_.own_rows(), width()};
  }
  static nn::Gradient GradientOf(zero::UnitScope& unit, int parameter) {
    const zero::GradientTarget target = unit.gradient(parameter);
    return {target.data, target.accumulate};
  }

  // Dropout of the residual stream's rows that this rank has, in place: y = dropout(x), and +
  // residual unless it is null; and its gradient.
  absl::Status Dropout(const Call& call, uint32_t place, void* x, const void* residual);
  absl::Status DropoutBackward(const Call& call, uint32_t place, const void* dy, void* dx);
  // Calls visit(mask, offset in bytes, elements) for each of this rank's rows that are neighbours in
  // the texts.
  absl::Status ForEachMask(
      const Call& call, uint32_t place,
      absl::FunctionRef<absl::Status(const nn::DropoutMask&, int64_t, int64_t)> visit) const;
  // x = dropout(x + bias) + residual.
  absl::Status AddBranch(const Call& call, uint32_t place, const void* bias, const void* residual,
                         void* x);
  // The gradient of the sum x + bias in AddBranch, from that of its result: dx() itself without
  // dropout, else `memory`, which gets it.
  absl::StatusOr<const void*> BranchGradient(const Call& call, uint32_t place, void* memory);

  // In the arena.
  char* At(int64_t offset) { return memory_.as<char>().data() + offset; }
  int head() const { return static_cast<int>(shape_.model.layers) + 1; }
  // Of the residual stream, where each stage leaves that of its input. Behind the arena.
  void* dx() { return At(schedule_.arena_bytes); }

  // One operation of the schedule that computes nothing.
  absl::Status Move(const recompute::PlacedOperation& placed, device::Stream& stream);
  // One that does, with its marks; `unit` is its stage's.
  absl::Status Run(const recompute::PlacedOperation& placed, const Call& call,
                   zero::UnitScope& unit);
  absl::Status Compute(const recompute::PlacedOperation& placed, const Call& call,
                       zero::UnitScope& unit);
  absl::Status ForwardEmbedding(const recompute::PlacedOperation& placed, const Call& call,
                                zero::UnitScope& unit);
  absl::Status ForwardHead(const recompute::PlacedOperation& placed, const Call& call,
                           zero::UnitScope& unit);
  absl::Status BackwardEmbedding(const recompute::PlacedOperation& placed, const Call& call,
                                 zero::UnitScope& unit);
  absl::Status BackwardHead(const recompute::PlacedOperation& placed, const Call& call,
                            zero::UnitScope& unit);
  absl::Status ForwardBlock(int64_t layer, const void* x, const BlockMemory& memory,
                            const Call& call, zero::UnitScope& unit);
  absl::Status BackwardBlock(int64_t layer, const BlockSaveOption& option, const void* x,
                             const BlockMemory& memory, const Call& call, zero::UnitScope& unit);

  const PassShape shape_;
  const recompute::Schedule schedule_;
  const BlockLayout layout_;
  device::Buffer memory_;
  std::unique_ptr<Layers> layers_;
  // Null where the schedule writes nothing to the host.
  std::unique_ptr<recompute::Stash> stash_;
};

// Where there is dropout, by the layer of its mask: of the embedding's output, and of what each
// block's attention and MLP add to the residual stream.
inline constexpr uint32_t kEmbeddingPlace = 0;
inline uint32_t AttentionPlace(int64_t layer) { return static_cast<uint32_t>(2 * layer + 1); }
inline uint32_t MlpPlace(int64_t layer) { return static_cast<uint32_t>(2 * layer + 2); }

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_
