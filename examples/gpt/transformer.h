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
#include "brigade/examples/gpt/nn/blas.h"
#include "brigade/examples/gpt/nn/gradient.h"
#include "brigade/examples/gpt/nn/pointwise.h"
#include "brigade/examples/gpt/nn/texts.h"
#include "brigade/precision/dtype.h"

namespace brigade::gpt {

enum class Direction : uint8_t { kForward, kBackward };

// Where weights come from and gradients go: a ZeroOptimizer when training (zero_parameters.h), plain arrays in a test.
class ModelParameters {
 public:
  virtual ~ModelParameters() = default;

  // Around each use of a unit's weights.
  virtual absl::Status Acquire(int unit, Direction direction) = 0;
  virtual absl::Status Release(int unit) = 0;
  virtual absl::StatusOr<const void*> Weights(int parameter) = 0;

  virtual absl::StatusOr<nn::Gradient> GradientOf(int unit, int parameter) = 0;
  virtual absl::Status GradientsReady(int unit) = 0;  // all of the unit's are enqueued
};

// The model's forward and backward pass over a micro-batch.
//
// Precision    Weights, activations and their gradients are of `dtype`; losses float (double for float64).
// Memory       Activations and gradients of them: ActivationBytes, of purpose activations; the workspace of matrix
//              products (Blas::WorkspaceBytes of the largest one), scratch. All at Create.
// Stream       Enqueued on the one stream given to all calls; allocates nothing, never waits.
// Errors       Create: InvalidArgument naming the option; those of Blas.
class Transformer {
 public:
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelOptions& model,
                                                             int64_t batch, precision::DType dtype,
                                                             device::Context& context);

  static int64_t ActivationBytes(const ModelOptions& model, int64_t batch, precision::DType dtype);
  static int64_t WorkspaceBytes(const ModelOptions& model, int64_t batch, precision::DType dtype);

  // losses [batch * context], device memory: the cross entropy of each position, in nats.
  absl::Status Forward(const nn::Texts& texts, void* losses, ModelParameters& parameters,
                       device::Stream& stream);

  // The gradient of seed * (mean of the last Forward's losses); `seed` [1] is device memory. Once for each Forward,
  // and of the same texts: it uses up what that has left.
  absl::Status Backward(const nn::Texts& texts, const float* seed, ModelParameters& parameters,
                        device::Stream& stream);

 private:
  // What a block's forward pass leaves to its backward pass.
  struct BlockActivations {
    void *x, *norm1, *mean1, *inverse1, *qkv, *probabilities, *attention;
    void *middle, *norm2, *mean2, *inverse2, *expanded, *gelu;
  };
  struct Activations {
    void *x, *norm, *mean, *inverse, *logits;   // the last block's output, and the head
    void *dx, *dwidth, *dmlp, *dqkv, *dscores;  // gradients, of one block at a time
  };
  class Arena;

  Transformer(const ModelOptions& model, int64_t batch, precision::DType dtype);

  static void LayOut(const ModelOptions& model, int64_t batch, precision::DType dtype, Arena& arena,
                     Activations& all, std::vector<BlockActivations>& blocks);

  nn::MatrixShape Shape(int64_t columns) const { return {dtype_, rows_, columns}; }
  void* Output(int64_t layer);  // of block `layer`

  absl::Status ForwardBlock(int64_t layer, ModelParameters& parameters, device::Stream& stream);
  absl::Status BackwardBlock(int64_t layer, ModelParameters& parameters, device::Stream& stream);
  // y = x weight^T, of a weight [outputs, inputs]; and its gradients.
  absl::Status Linear(const void* x, int64_t inputs, const void* weight, int64_t outputs, void* y,
                      device::Stream& stream);
  absl::Status LinearBackward(const void* dy, int64_t outputs, const void* x, int64_t inputs,
                              const void* weight, nn::Gradient dweight, void* dx,
                              device::Stream& stream);

  const ModelOptions model_;
  const int64_t batch_, rows_;
  const precision::DType dtype_;
  device::Buffer memory_;
  Activations all_ = {};
  std::vector<BlockActivations> blocks_;
  std::unique_ptr<nn::Blas> blas_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TRANSFORMER_H_
