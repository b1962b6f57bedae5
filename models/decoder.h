#ifndef BRIGADE_MODELS_DECODER_H_
#define BRIGADE_MODELS_DECODER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/models/config.h"
#include "brigade/models/decoder_memory.h"
#include "brigade/models/lora.h"
#include "brigade/models/model.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/lora.h"
#include "brigade/nn/rotary.h"
#include "brigade/nn/segments.h"
#include "brigade/nn/token_ids.h"
#include "brigade/nn/workspace.h"
#include "brigade/parallel/context/ring_attention.h"
#include "brigade/parallel/context/ulysses.h"
#include "brigade/parallel/tensor/cross_entropy.h"
#include "brigade/parallel/tensor/shard_sums.h"

namespace brigade::models {

// A language model: an embedding, blocks of causal attention and an MLP, and a head. GPT-2's and
// Llama's, with the parameters of Hugging Face's GPT2LMHeadModel and LlamaForCausalLM: the same
// names, shapes and orientations, so that its files are read and written element by element.
//
// Batch        inputs: int32 ids [samples, positions]; targets: int32 labels of the same shape:
//              what each position is to predict (shifted already), nn::TokenIds::kIgnoredLabel
//              where it has no loss. A text that is shorter goes to the left, with ignored labels
//              behind it: no position sees what is behind. With DecoderOptions::segments inputs
//              are [samples, 3, positions]: ids, and of nn::Segments positions and ends, as
//              data::TokenSamples has them. Each document has then the logits, and makes the
//              gradients, that it does alone, within rounding.
// Units        The embedding, each block, the head, which uses the embedding's tokens if it is
//              tied.
// Adapters     With DecoderOptions::lora they are the only parameters that are trained (lora.h);
//              dropout is of batches with a step. Of a layer that is cut by columns B is cut, by
//              rows A: one more sum of [rows, rank], in the backward pass or in both.
// Precision    Weights, activations and their gradients are of one type: float, Half, BFloat16, or
//              double for tests. Each layer's own (nn/); residuals are added before the product
//              that makes them is rounded, of several shards behind it.
// Pipelines    With DecoderOptions::stage, in chunks of any units; what crosses is the residual
//              stream. Backward passes can be in halves: the first makes the gradients of norms and
//              adapters too, and keeps them for the second. The bits are those of the whole model.
// Tensor ranks With DecoderOptions::tensor the matrices are cut in shards (ShardOf): heads by
//              groups, with their keys and values, the MLP by what is inside of it, the vocabulary
//              if the shards divide it. Each shard is multiplied for itself, and sums over them, of
//              which a block has two in each pass, are one tree (parallel::ShardSums): the number
//              of ranks that share them changes no bit on a CPU, that of the shards does. Norms,
//              positions and residuals are the same on all ranks. One shard is the model without.
// Context      With DecoderOptions::context_ranks batches are of the positions that this rank has,
//              in ascending order, and attention is that of whole samples, shard by shard. Passes
//              are then calls of all ranks of the group. Logits, losses and gradients of
//              activations are those of one rank, within the rounding of attention; gradients of
//              parameters are this rank's part of a sum. Keys and values go to others as often as
//              heads of queries use them.
// Memory       MemoryOf, at Create; and the workspaces of the communicators for what CollectivesOf
//              says. On the host, for a moment, nn::RotaryTable's.
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
  // backward pass; of a stage, of the last one in slot 0. Null of a stage without the head. Of a
  // vocabulary that is cut, this rank's shards: [shards, rows, vocabulary of a shard].
  const void* logits() const {
    return memory_.slots.empty() ? nullptr : memory_.slots.front().logits;
  }

  // With adapters, and of every parameter what it is.
  const std::vector<LoraModule>& modules() const { return modules_; }
  const std::vector<ParameterRole>& roles() const { return roles_; }
  // Whether passes add what the adapters say: not after they are merged into the base (merge.h).
  // Backward passes are then FailedPrecondition.
  bool applies_adapters() const { return applies_adapters_; }
  void set_applies_adapters(bool applies) { applies_adapters_ = applies; }

  // The forward pass of positions that come behind `first` ones whose keys and values are kept, and
  // now are too: logits of the new ones. Texts of a batch are equally long. The first call of new
  // texts has `first` = 0. The logits are those of a forward pass of the whole text, but for the
  // order of sums.
  //
  // Errors       InvalidArgument naming positions that are not kept yet, or for which the model has
  //              no memory.
  absl::Status Continue(const Batch& batch, int64_t first, zero::ParameterSource& source,
                        device::Stream& stream);

  int64_t CountOf(int parameter) const final {
    const ParameterRole& role = roles_[static_cast<size_t>(parameter)];
    return role.kind == ParameterRole::Kind::kInt8Base ? role.size() / cut_.shards.ranks
                                                       : Model::CountOf(parameter);
  }
  const ModelCut* cut() const final { return &cut_; }
  std::vector<parallel::PassCollective> CollectivesOf(const Batch& batch) const final;
  int64_t LossesOf(const Batch& batch) const final { return batch.rows(); }
  std::optional<Boundary> BoundaryOf(const Batch& batch) const final {
    return Boundary{batch.rows() * config_.width, dtype()};
  }
  bool splits_backward() const final { return true; }
  bool recomputes() const final { return options_.recompute; }
  bool cuts_positions() const final { return options_.context_ranks.share(); }
  int slots() const final { return static_cast<int>(memory_.slots.size()); }
  int deferred() const final { return static_cast<int>(memory_.deferred.size()); }
  absl::Status ForwardUnit(int unit, const Batch& batch, void* losses, UnitParameters& parameters,
                           device::Stream& stream) final;
  absl::Status RecomputeUnit(int unit, const Batch& batch, UnitParameters& parameters,
                             device::Stream& stream) final;
  // Of attention the pairs of a whole sample, also where segments have fewer.
  std::optional<UnitFlops> FlopsOf(int unit, const Batch& batch) const final {
    return FlopsOfShards(unit, batch, options_.tensor.shards);
  }
  std::optional<UnitFlops> WholeFlopsOf(int unit, const Batch& batch) const final {
    return FlopsOfShards(unit, batch, {.count = options_.tensor.shards.count});
  }
  absl::Status BackwardUnit(int unit, const Batch& batch, const float* seed,
                            UnitParameters& parameters, device::Stream& stream) final;
  // Matrices and tables: normal with deviation 0.02; norms 1, biases 0; adapters as in lora.h.
  void Initialize(int parameter, uint64_t seed, absl::Span<float> values) const override;

 protected:
  // How a product is cut over tensor shards: each has some of the outputs, of all inputs, or
  // outputs are sums over shards, each of some of the inputs; its bias is then added once.
  enum class Cut : uint8_t { kNone, kColumns, kRows };

  // A matrix product of a unit: numbers of its parameters in the spec, -1 for no bias. Inputs and
  // outputs are those of a shard.
  struct LinearLayer {
    int weight = -1;
    int bias = -1;
    Cut cut = Cut::kNone;
    int64_t inputs = 0;
    int64_t outputs = 0;
    // Of what it writes; 0: outputs.
    int64_t leading = 0;
    // GPT-2's.
    bool input_major = false;
    // Whose weight may be the embedding's.
    bool is_head = false;

    int64_t size() const { return inputs * outputs; }
    // From a row of what it writes to the next.
    int64_t columns() const { return leading == 0 ? outputs : leading; }
  };

  // One unit's pass.
  struct Call {
    const Batch& batch;
    const nn::TokenIds& ids;
    const nn::Segments& segments;
    UnitParameters& parameters;
    device::Stream& stream;
    int layer = -1;
    // With a cache: positions before the batch's; else none.
    std::optional<int64_t> first = std::nullopt;
    const DecoderSlot* slot = nullptr;
    // In a half of a backward pass; else null.
    const DeferredSlot* deferred = nullptr;
    // In a backward pass, the gradient of the residual stream.
    void* dx = nullptr;
    int64_t rows() const { return ids.rows(); }
    bool computes_inputs() const { return batch.chunk.half != BackwardHalf::kWeights; }
    bool computes_weights() const { return batch.chunk.half != BackwardHalf::kInputs; }
  };

  // `plan`: of this rank.
  Decoder(const DecoderConfig& config, const DecoderOptions& options, const LoraPlan& plan,
          const ModelCut& cut);

  // A block: out = f(x), both [rows, width], keeping what its backward pass needs in `arrays`; with
  // a null `out` only that. And the gradient: call.dx is that of `out` and becomes that of x. Of
  // the halves of a backward pass the first keeps what products of weights read (Keep), and the
  // second makes these alone.
  virtual absl::Status ForwardBlock(const Call& call, int first_parameter, const void* x,
                                    const BlockArrays& arrays, void* out) = 0;
  virtual absl::Status BackwardBlock(const Call& call, int first_parameter, const void* x,
                                     const BlockArrays& arrays) = 0;

  // The layers, by the numbers of their parameters. Norms are RMS norms without a bias. Of several
  // shards y, by columns, or x, by rows, are [shards, rows, columns of a shard]; a sum over them is
  // neither accumulated nor has a bias.
  absl::Status Linear(const Call& call, const LinearLayer& layer, const void* x, void* y,
                      bool accumulate = false);
  absl::Status LinearBackward(const Call& call, const LinearLayer& layer, const void* x,
                              const void* dy, nn::Gradient dx);
  // Layers side by side, of one x, with the gradients of what they make: dx is the sum of all.
  struct Column {
    const LinearLayer& layer;
    const void* dy;
  };
  absl::Status ColumnsBackward(const Call& call, absl::Span<const Column> columns, const void* x,
                               void* dx);
  absl::Status Norm(const Call& call, int weight, int bias, const void* x, const NormArrays& norm);
  // dx of the residual stream, where the gradient of what follows is in memory().y; added to it, or
  // written by the head. In the second half nothing.
  absl::Status NormBackward(const Call& call, int weight, int bias, const void* x,
                            const NormArrays& norm, bool accumulate = true);

  // Of a tensor shard, and how many of them this rank has.
  const DecoderConfig& shard() const { return shard_; }
  int local_shards() const { return options_.tensor.shards.local(); }
  bool is_sharded() const { return options_.tensor.is_sharded(); }
  int ShardsOf(const LinearLayer& layer) const {
    return layer.cut == Cut::kNone ? 1 : local_shards();
  }
  // What of an array is one of this rank's shards', which has so many elements there.
  const void* OfShard(const void* array, int s, int64_t elements) const {
    return array == nullptr ? nullptr : static_cast<const char*>(array) + s * Bytes(elements);
  }
  void* OfShard(void* array, int s, int64_t elements) const {
    return const_cast<void*>(OfShard(static_cast<const void*>(array), s, elements));
  }
  // Of a shard's attention.
  void* LogSumExpOf(const Call& call, const BlockArrays& arrays, int s) const;

  const DecoderMemory& memory() const { return memory_; }
  // Where a block's gradients are; and call.dx there, if it is not already.
  BlockGradients GradientsOf(const Call& call) const;
  absl::Status Keep(const Call& call, void* gradient);
  const nn::RotaryTable& rotary_table() const { return *table_; }
  precision::DType dtype() const { return options_.dtype; }
  // Of one shard: attention of a block, from queries, keys and values of all its heads to
  // arrays.heads; and from memory().dheads, the gradients of those, which the backward pass need
  // not be given where ranks exchange heads.
  absl::Status Attend(const Call& call, const void* qkv, const BlockArrays& arrays, int s);
  absl::Status AttendBackward(const Call& call, const void* qkv, const BlockArrays& arrays, int s,
                              void* dqkv);
  bool exchanges_heads() const { return ulysses_ != nullptr; }
  // Of one shard, and of this rank's positions.
  nn::AttentionShape AttentionOf(const Call& call) const;
  // By which positions are counted.
  nn::Segments PositionsOf(const Call& call) const;
  // The same as ids of a table of positions.
  nn::TokenIds PositionIdsOf(const Call& call) const;
  // From `projected`, by the cache.
  absl::Status CachedAttention(const Call& call, const BlockArrays& arrays);
  int64_t Bytes(int64_t elements) const { return elements * precision::SizeOf(options_.dtype); }
  nn::Blas& blas() { return *blas_; }
  const nn::Workspace& workspace() const { return *workspace_; }

 private:
  absl::Status Check(int unit, const Batch& batch, bool trains) const;
  absl::Status CheckChunk(int unit, const ChunkPass& chunk, bool trains) const;
  Call CallOf(int unit, const Batch& batch, const nn::TokenIds& ids, const nn::Segments& segments,
              UnitParameters& parameters, device::Stream& stream) const;
  // What a unit reads, and where it leaves what it makes.
  const void* InputOf(const Call& call) const;
  void* OutputOf(const Call& call) const;
  const BlockArrays& ArraysOf(const Call& call) const;
  absl::Status BackwardEmbedding(const Call& call);
  // Of parameters whose gradients the first half makes; and what it has made, to where it belongs.
  nn::Gradient GradientOfFirstHalf(const Call& call, int parameter) const;
  absl::Status DeliverGradients(const Call& call);
  nn::TokenIds IdsOf(const Batch& batch) const;
  nn::Segments SegmentsOf(const Batch& batch) const;
  int head_unit() const { return static_cast<int>(config_.layers) + 1; }
  // Where a unit of the spec begins, and the head's two: of its norm and its product.
  int FirstParameter(int unit) const { return first_parameter_[static_cast<size_t>(unit)]; }
  LinearLayer HeadLayer() const;

  // decoder_flops.cc. Of a rank that has so many of the shards.
  UnitFlops FlopsOfShards(int unit, const Batch& batch, const parallel::TensorShards& shards) const;

  // decoder_tensor.cc. Of the passes between ranks; and the ids as a rank sees them that has a part
  // of the vocabulary.
  absl::Status CreateSums(device::Context& context);
  std::vector<parallel::PassCollective> TensorCollectives(const Batch& batch) const;
  bool cuts_vocabulary() const { return CutsVocabulary(config_, options_.tensor.shards); }
  absl::StatusOr<nn::TokenIds> WindowOf(const nn::TokenIds& ids) const;
  // Rows of a table of tokens of so many columns.
  absl::Status LookUp(const Call& call, int64_t columns, const void* tokens, const void* positions,
                      void* x);
  absl::Status SumRows(const Call& call, const LinearLayer& layer, const void* x, void* y);
  absl::Status Losses(const Call& call, void* losses);
  absl::Status LossesBackward(const Call& call, const float* seed);

  // decoder_tensor_lora.cc. Of an adapter whose layer is cut, as one of this rank's shards has it:
  // by columns B is cut, by rows A and x.
  nn::LoraInput ShardLora(const Call& call, const LinearLayer& layer, const LoraModule& module,
                          const void* x, int s) const;
  // dropout(x) a^T, a sum over shards.
  absl::Status SumDown(const Call& call, const LinearLayer& layer, const LoraModule& module,
                       const void* x);
  absl::Status AddCutAdapter(const Call& call, const LinearLayer& layer, const LoraModule& module,
                             const void* x, void* y);
  absl::Status CutAdapterBackward(const Call& call, const LinearLayer& layer,
                                  const LoraModule& module, const void* x, const void* dy,
                                  void* dx);

  // decoder_context.cc. What ranks that share samples have beside the others' memory.
  absl::Status CreateContext(device::Context& context);
  std::vector<parallel::PassCollective> ContextCollectives(const Batch& batch) const;
  parallel::Ulysses::Saved SavedOf(const Call& call, const BlockArrays& arrays, int s) const;
  // Which rows of whole samples a batch has; none if it has whole ones.
  absl::Span<const nn::RowRun> RunsOf(const Batch& batch) const;
  // Of a table of positions the rows of the batch's, until the next call.
  absl::StatusOr<const void*> PositionRows(const Call& call, const void* table, int64_t columns);
  // Calls `make` with memory for the gradient of these rows, and brings it into the table's.
  absl::Status MakePositionRows(const Call& call, nn::Gradient table, int64_t columns,
                                absl::FunctionRef<absl::Status(nn::Gradient)> make);
  // Between a table and own_positions_.
  absl::Status CopyOwnRows(void* table, bool to_table, int64_t columns, device::Stream& stream);

  // decoder_lora.cc. One shard of the layer's weight, as a matrix of the model's type; of codes
  // until the next one is.
  absl::StatusOr<const void*> WeightOf(const Call& call, const LinearLayer& layer, int s);
  // Null: none, or it is merged.
  const LoraModule* AdapterOf(const LinearLayer& layer) const;
  // Where the rows of a batch begin among those of all the step's whole samples.
  int64_t FirstElement(const Batch& batch, int64_t columns) const {
    return batch.first_sample * batch.positions * options_.context_ranks.size() * columns;
  }
  nn::LoraInput LoraOf(const Call& call, const LoraModule& module, const void* x,
                       int64_t leading = 0) const;
  nn::LoraScratch scratch() const;
  // What the adapters of a layer, and of the embedding, add; and the gradients.
  absl::Status AddAdapter(const Call& call, const LinearLayer& layer, const void* x, void* y);
  absl::Status AdapterBackward(const Call& call, const LinearLayer& layer, const void* x,
                               const void* dy, nn::Gradient dx);
  absl::Status AddEmbeddingAdapters(const Call& call, void* x);
  absl::Status EmbeddingAdaptersBackward(const Call& call);
  absl::Status PositionAdapterBackward(const Call& call, const LoraModule& module);

  const DecoderConfig config_, shard_;
  const DecoderOptions options_;
  const ModelCut cut_;
  const std::vector<LoraModule> modules_;
  const std::vector<ParameterRole> roles_;
  // Of linear layers but the head, by the number of the weight; and of the head. -1: none.
  std::vector<int> module_of_;
  int head_module_ = -1;
  bool applies_adapters_ = true;
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
  // Null of one shard, and where the vocabulary is not cut.
  std::unique_ptr<parallel::ShardSums> sums_;
  std::unique_ptr<parallel::VocabularyCrossEntropy> cross_entropy_;
  // Where ranks share samples one of the two; rows of a table of positions that are apart there;
  // and RunsOf of the largest batch.
  std::unique_ptr<parallel::RingAttention> ring_;
  std::unique_ptr<parallel::Ulysses> ulysses_;
  device::Buffer own_positions_;
  std::vector<nn::RowRun> row_runs_;
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_DECODER_H_
