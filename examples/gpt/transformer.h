#ifndef BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_
#define BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/linear.h"
#include "brigade/nn/pointwise.h"
#include "brigade/nn/texts.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/step.h"

namespace brigade::gpt {

// The model's forward and backward pass over a micro-batch. The weights come from, and the
// gradients go to, a zero::ParameterSource with the units of SpecOf.
//
// Precision    Weights, activations and their gradients are of `dtype`; losses are float (double
//              for float64).
// Memory       Activations and their gradients: ActivationBytes, of purpose activations; the
//              workspaces of matrix products (Blas::WorkspaceBytes of the largest one), of sums
//              and of attention (layers_bytes), scratch. All of it at Create.
// Stream       Enqueued on the one stream given to all calls; allocates nothing, never waits.
// Errors       Create: InvalidArgument naming the option; those of Blas.
class Transformer {
 public:
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelOptions& model,
                                                             int64_t batch, precision::DType dtype,
                                                             device::Context& context);

  static int64_t ActivationBytes(const ModelOptions& model, int64_t batch, precision::DType dtype);
  static int64_t WorkspaceBytes(const ModelOptions& model, int64_t batch, precision::DType dtype);

  // Of sums and of attention.
  int64_t layers_bytes() const {
    return workspace_.memory().bytes() + attention_workspace_.bytes();
  }

  // losses [batch * context], device memory: the cross entropy of each position, in nats.
  absl::Status Forward(const nn::Texts& texts, void* losses, zero::ParameterSource& parameters,
                       device::Stream& stream);

  // The gradient of seed * (mean of the last Forward's losses); `seed` [1] is device memory. Once
  // for each Forward, of the same texts: it overwrites the activations.
  absl::Status Backward(const nn::Texts& texts, const float* seed,
                        zero::ParameterSource& parameters, device::Stream& stream);

 private:
  // Written by a block's forward pass and read by its backward pass.
  struct BlockActivations {
    void *x, *norm1, *mean1, *inverse1, *qkv, *attention, *log_sum_exp;
    void *middle, *norm2, *mean2, *inverse2, *expanded, *gelu;
  };
  struct Activations {
    // The last block's output, and the head.
    void *x, *norm, *mean, *inverse, *logits;
    // Gradients, of one block at a time.
    void *dx, *dwidth, *dmlp, *dqkv;
  };
  class Arena;

  Transformer(const ModelOptions& model, int64_t batch, precision::DType dtype);

  static void LayOut(const ModelOptions& model, int64_t batch, precision::DType dtype, Arena& arena,
                     Activations& all, std::vector<BlockActivations>& blocks);

  nn::AttentionShape Attention() const {
    return {dtype_, batch_, model_.context, model_.heads, model_.width};
  }
  nn::MatrixShape Shape(int64_t columns) const { return {dtype_, rows_, columns}; }
  // The output of a block.
  void* Output(int64_t layer);
  static nn::Gradient GradientOf(zero::UnitScope& unit, int parameter) {
    const zero::GradientTarget target = unit.gradient(parameter);
    return {target.data, target.accumulate};
  }

  // `unit` is the block's.
  absl::Status ForwardBlock(int64_t layer, zero::UnitScope& unit, device::Stream& stream);
  absl::Status BackwardBlock(int64_t layer, zero::UnitScope& unit, device::Stream& stream);
  nn::LinearInput Product(const void* x, int64_t inputs, const void* weight,
                          int64_t outputs) const {
    return {dtype_, x, weight, rows_, inputs, outputs};
  }

  const ModelOptions model_;
  const int64_t batch_, rows_;
  const precision::DType dtype_;
  device::Buffer memory_;
  Activations all_ = {};
  std::vector<BlockActivations> blocks_;
  std::unique_ptr<nn::Blas> blas_;
  nn::Workspace workspace_;
  device::Buffer attention_workspace_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_
