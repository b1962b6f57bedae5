#ifndef BRIGADE_MODELS_DECODER_H_
#define BRIGADE_MODELS_DECODER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/models/config.h"
#include "brigade/models/decoder_memory.h"
#include "brigade/models/model.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/rotary.h"
#include "brigade/nn/token_ids.h"
#include "brigade/nn/workspace.h"

namespace brigade::models {

// A language model: an embedding, blocks of causal attention and an MLP, and a head. GPT-2's and
// Llama's, with the parameters of Hugging Face's GPT2LMHeadModel and LlamaForCausalLM: the same
// names, shapes and orientations, so that its files are read and written element by element.
//
// Batch        inputs: int32 ids [samples, positions]; targets: int32 labels of the same shape:
//              what each position is to predict (shifted already), nn::TokenIds::kIgnoredLabel
//              where it has no loss. A text that is shorter goes to the left, with ignored labels
//              behind it: no position sees what is behind.
// Units        The embedding, each block, the head, which uses the embedding's tokens if it is
//              tied.
// Precision    Weights, activations and their gradients are of one type: float, Half, BFloat16, or
//              double for tests. Each layer's own (nn/); residuals are added before the product
//              that makes them is rounded.
// Memory       MemoryOf, at Create. On the host, for a moment, nn::RotaryTable's.
// Determinism  That of the layers, with and without recomputation.
// Errors       Create: those of Validate and DecoderOptions; of Blas (Unavailable). Ids outside of
//              the vocabulary give NaN.
class Decoder : public Model {
 public:
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const DecoderConfig& config,
                                                         const DecoderOptions& options,
                                                         device::Context& context);

  // What Create allocates. `context` tells the device; nothing is allocated. Errors of Create.
  static absl::StatusOr<ModelMemory> MemoryOf(const DecoderConfig& config,
                                              const DecoderOptions& options,
                                              const device::Context& context);

  const DecoderConfig& config() const { return config_; }
  const DecoderOptions& options() const { return options_; }
  ModelMemory bytes() const final { return bytes_; }

  // [rows, vocabulary] of the model's type, device memory: of the last forward pass, up to its
  // backward pass.
  const void* logits() const { return memory_.logits; }

  // The forward pass of positions that come behind `first` ones whose keys and values are kept, and
  // now are too: logits of the new ones. Texts of a batch are equally long. The first call of new
  // texts has `first` = 0. The logits are those of a forward pass of the whole text, but for the
  // order of sums.
  //
  // Errors       InvalidArgument naming positions that are not kept yet, or for which the model has
  //              no memory.
  absl::Status Continue(const Batch& batch, int64_t first, zero::ParameterSource& source,
                        device::Stream& stream);

  int64_t LossesOf(const Batch& batch) const final { return batch.rows(); }
  absl::Status ForwardUnit(int unit, const Batch& batch, void* losses, UnitParameters& parameters,
                           device::Stream& stream) final;
  absl::Status BackwardUnit(int unit, const Batch& batch, const float* seed,
                            UnitParameters& parameters, device::Stream& stream) final;
  // Matrices and tables: normal with deviation 0.02; norms 1, biases 0.
  void Initialize(int parameter, uint64_t seed, absl::Span<float> values) const override;

 protected:
  // A matrix product of a unit: numbers of its parameters in the spec, -1 for no bias.
  struct LinearLayer {
    int weight = -1;
    int bias = -1;
    int64_t inputs = 0;
    int64_t outputs = 0;
    // Of what it writes; 0: outputs.
    int64_t leading = 0;
    // GPT-2's.
    bool input_major = false;
  };

  // One unit's pass.
  struct Call {
    const nn::TokenIds& ids;
    UnitParameters& parameters;
    device::Stream& stream;
    int layer = -1;
    // With a cache: positions before the batch's; else none.
    std::optional<int64_t> first = std::nullopt;
    int64_t rows() const { return ids.rows(); }
  };

  Decoder(const DecoderConfig& config, const DecoderOptions& options, zero::ModelSpec spec);

  // A block: out = f(x), both [rows, width], keeping what its backward pass needs in `arrays`; with
  // a null `out` only that. And the gradient: memory().dx is that of `out` and becomes that of x.
  virtual absl::Status ForwardBlock(const Call& call, int first_parameter, const void* x,
                                    const BlockArrays& arrays, void* out) = 0;
  virtual absl::Status BackwardBlock(const Call& call, int first_parameter, const void* x,
                                     const BlockArrays& arrays) = 0;

  // The layers, by the numbers of their parameters. Norms are RMS norms without a bias.
  absl::Status Linear(const Call& call, const LinearLayer& layer, const void* x, void* y,
                      bool accumulate = false);
  absl::Status LinearBackward(const Call& call, const LinearLayer& layer, const void* x,
                              const void* dy, nn::Gradient dx);
  absl::Status Norm(const Call& call, int weight, int bias, const void* x, const NormArrays& norm);
  // dx of the residual stream, where the gradient of what follows is in memory().y; added to it, or
  // written by the head.
  absl::Status NormBackward(const Call& call, int weight, int bias, const void* x,
                            const NormArrays& norm, bool accumulate = true);

  const DecoderMemory& memory() const { return memory_; }
  const nn::RotaryTable& rotary_table() const { return *table_; }
  precision::DType dtype() const { return options_.dtype; }
  nn::AttentionShape AttentionOf(const Call& call) const;
  // From `projected`, by the cache.
  absl::Status CachedAttention(const Call& call, const BlockArrays& arrays);
  int64_t Bytes(int64_t elements) const { return elements * precision::SizeOf(options_.dtype); }
  nn::Blas& blas() { return *blas_; }
  const nn::Workspace& workspace() const { return *workspace_; }

 private:
  absl::Status Check(const Batch& batch, bool trains) const;
  int head_unit() const { return static_cast<int>(config_.layers) + 1; }
  // Where a unit of the spec begins, and the head's two: of its norm and its product.
  int FirstParameter(int unit) const { return first_parameter_[static_cast<size_t>(unit)]; }
  LinearLayer HeadLayer() const;

  const DecoderConfig config_;
  const DecoderOptions options_;
  std::vector<int> first_parameter_;
  // By the parameter's number: 1 for weights of norms, 0 for biases, else nothing.
  std::vector<std::optional<float>> initial_;
  // In Continue; and how many positions are kept.
  std::optional<int64_t> first_;
  int64_t kept_ = 0, kept_samples_ = 0;
  // MemoryOf.
  ModelMemory bytes_;
  device::Buffer activations_;
  DecoderMemory memory_;
  std::unique_ptr<nn::Blas> blas_;
  std::optional<nn::Workspace> workspace_;
  std::optional<nn::RotaryTable> table_;
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_DECODER_H_
