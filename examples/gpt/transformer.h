#ifndef BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_
#define BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/block_layout.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/dropout.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/linear.h"
#include "brigade/nn/pointwise.h"
#include "brigade/nn/texts.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"
#include "brigade/recompute/schedule.h"
#include "brigade/recompute/stash.h"
#include "brigade/zero/step.h"

namespace brigade::gpt {

// The model's forward and backward pass over a micro-batch. The weights come from, and the
// gradients go to, a zero::ParameterSource with the units of SpecOf; it must expect the backward
// pass to use them in the order of Schedule::BackwardUses.
//
// Precision    Weights, activations and their gradients are of `dtype`; losses are float (double
//              for float64).
// Memory       Activations and their gradients: ActivationBytes, of purpose activations; the
//              workspaces of matrix products (Blas::WorkspaceBytes of the largest one), of sums
//              and of attention (layers_bytes), scratch. On the host, for a schedule on two tiers,
//              what it writes: Stash::HostBytes. All of it at Create.
// Stream       Enqueued on the one stream given to all calls; allocates nothing, never waits.
//              Copies to the host and back run on another (recompute::Stash), also those of a
//              forward pass that no backward pass follows.
// Dropout      As in GPT-2, of the embedding's output and of what attention and MLP of each block
//              add to the residual stream; attention's probabilities, which are nowhere in memory,
//              have none. Masks are made again wherever they are needed, and take no memory. With a
//              probability of 0 nothing is enqueued for them.
// Determinism  The same bits with every schedule, with dropout too.
// Tracing      Which part of a pass the stream is in, by marks (pass_times.h).
// Errors       Create: InvalidArgument naming the option; those of Blas and Stash.
class Transformer {
 public:
  // `schedule`: of ActivationChain of the same model, batch and type. `stash_file`: what the
  // schedule writes goes there, instead of to the host.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(
      const ModelOptions& model, int64_t batch, precision::DType dtype,
      recompute::Schedule schedule, device::Context& context,
      const device::FileOptions* stash_file = nullptr);

  static int64_t ActivationBytes(const ModelOptions& model, int64_t batch, precision::DType dtype,
                                 const recompute::Schedule& schedule);
  static int64_t WorkspaceBytes(const ModelOptions& model, int64_t batch, precision::DType dtype);

  // Of sums and of attention.
  int64_t layers_bytes() const {
    return workspace_.memory().bytes() + attention_workspace_.bytes();
  }

  // Null where the schedule writes nothing.
  const recompute::Stash* stash() const { return stash_.get(); }

  // losses [batch * context], device memory: the cross entropy of each position, in nats.
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

  Transformer(const ModelOptions& model, int64_t batch, precision::DType dtype,
              recompute::Schedule schedule);

  nn::AttentionShape Attention() const {
    return {dtype_, batch_, model_.context, model_.heads, model_.width};
  }
  nn::MatrixShape Shape(int64_t columns) const { return {dtype_, rows_, columns}; }
  nn::LinearInput Product(const void* x, int64_t inputs, const void* weight,
                          int64_t outputs) const {
    return {dtype_, x, weight, rows_, inputs, outputs};
  }
  static nn::Gradient GradientOf(zero::UnitScope& unit, int parameter) {
    const zero::GradientTarget target = unit.gradient(parameter);
    return {target.data, target.accumulate};
  }

  // Of the call's texts, of an array of the width.
  static nn::DropoutMask Mask(const Call& call, uint32_t place) {
    nn::DropoutMask mask = call.dropout;
    mask.layer = place;
    return mask;
  }
  // x = dropout(x + bias) + residual.
  absl::Status AddBranch(const Call& call, uint32_t place, const void* bias, const void* residual,
                         void* x);
  // The gradient of the sum x + bias in AddBranch, from that of its result: dx() itself without
  // dropout, else `memory`, which gets it.
  absl::StatusOr<const void*> BranchGradient(const Call& call, uint32_t place, void* memory);

  // In the arena.
  char* At(int64_t offset) { return memory_.as<char>().data() + offset; }
  int head() const { return static_cast<int>(model_.layers) + 1; }
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
  absl::Status BackwardEmbedding(const Call& call, zero::UnitScope& unit);
  absl::Status BackwardHead(const recompute::PlacedOperation& placed, const Call& call,
                            zero::UnitScope& unit);
  absl::Status ForwardBlock(int64_t layer, const void* x, const BlockMemory& memory,
                            const Call& call, zero::UnitScope& unit);
  absl::Status BackwardBlock(int64_t layer, const BlockSaveOption& option, const void* x,
                             const BlockMemory& memory, const Call& call, zero::UnitScope& unit);

  const ModelOptions model_;
  const int64_t batch_, rows_;
  const precision::DType dtype_;
  const recompute::Schedule schedule_;
  const BlockLayout layout_;
  device::Buffer memory_;
  std::unique_ptr<nn::Blas> blas_;
  nn::Workspace workspace_;
  device::Buffer attention_workspace_;
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
