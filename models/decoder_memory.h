#ifndef BRIGADE_MODELS_DECODER_MEMORY_H_
#define BRIGADE_MODELS_DECODER_MEMORY_H_

// The arrays of a decoder's passes, as places in one allocation.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "brigade/device/device.h"
#include "brigade/models/config.h"
#include "brigade/models/decoder_options.h"
#include "brigade/models/lora.h"
#include "brigade/models/model_cut.h"

namespace brigade::models {

// How the parameters of a plan of the whole model are cut; and what sums over shards take of
// scratch.
ModelCut CutOf(const DecoderConfig& config, const LoraPlan& whole,
               const parallel::TensorShards& shards);
// A base of codes: the message of each shard of a matrix, one after the other.
void QuantizeShards(const DecoderConfig& config, const ParameterRole& role, int shards,
                    absl::Span<const float> values, absl::Span<float> words);
int64_t SumBytes(const DecoderConfig& config, const DecoderOptions& options);

// Of a normalisation: what it gives, and what its backward pass needs: a number for each row.
struct NormArrays {
  void* y = nullptr;
  // Llama's has none.
  void* mean = nullptr;
  void* inverse = nullptr;
};

// What a block keeps for its backward pass. Of several tensor shards, what is between a product by
// columns and one by rows lies shard by shard: [shards, rows, columns of a shard].
struct BlockArrays {
  NormArrays norm1, norm2;
  // [rows, projected_width]: queries, keys and values, rotated. Where ranks exchange heads they are
  // not kept, and all blocks have the same memory.
  void* projected = nullptr;
  // Where ranks exchange heads, of all positions of this rank's: [rows, 3 * attention_width] and
  // [rows, attention_width], as many rows (parallel::Ulysses::Saved).
  void* head_qkv = nullptr;
  void* head_out = nullptr;
  // [rows, attention_width].
  void* heads = nullptr;
  void* log_sum_exp = nullptr;
  // [rows, width]: the residual stream behind attention.
  void* middle = nullptr;
  // Of the MLP: before its activation, Llama's gates and what they let through, [rows, inner] or
  // [rows, 2 * inner]; and behind it, [rows, inner].
  void* expanded = nullptr;
  void* activated = nullptr;
};

// Gradients on a block's way back that products of weights read: of what it makes, of the residual
// stream behind attention, of `activated` and of queries, keys and values as they were projected.
struct BlockGradients {
  void* dout = nullptr;
  void* dmiddle = nullptr;
  void* dactivated = nullptr;
  void* dprojected = nullptr;
};

// What the passes over a chunk keep.
struct DecoderSlot {
  // By the unit: what it makes, [rows, width], the input of the next one. Not of the last unit of
  // a chunk, nor of the head. Without backward passes two take turns.
  std::vector<void*> streams;
  // Of each block; all have the same memory where it is not kept.
  std::vector<BlockArrays> blocks;
  NormArrays final_norm;
  void* logits = nullptr;
  // Of a vocabulary that is cut (parallel/tensor/cross_entropy.h).
  void* softmax = nullptr;
};

// What the first half of a backward pass leaves to the second.
struct DeferredSlot {
  // The gradient of what the embedding makes.
  void* dembedding = nullptr;
  // Of each block; and what it makes again, where that is not kept. None with adapters, of which
  // the first half makes all.
  std::vector<BlockGradients> gradients;
  std::vector<BlockArrays> blocks;
  // By the parameter's number: gradients that the first half makes, of norms and adapters; null for
  // others.
  std::vector<void*> parameters;
};

struct DecoderMemory {
  // Without StageUnits there is one, of all units.
  std::vector<DecoderSlot> slots;
  std::vector<DeferredSlot> deferred;
  // Of each block, [samples, cached_positions, key_value_heads * head_width].
  std::vector<void*> cached_keys, cached_values;
  // [rows, 3 * attention_width] where keys and values are repeated, of one shard.
  void* repeated = nullptr;

  // Of the backward pass: gradients of the residual stream, of a norm's result, of `heads`, and of
  // queries, keys and values as attention has them where they are repeated.
  void *dx = nullptr, *y = nullptr, *dheads = nullptr, *drepeated = nullptr;
  // Of passes that are not split; dout and dmiddle are the gradient of the residual stream.
  BlockGradients gradients;
  void* attention_workspace = nullptr;

  // Of adapters: their inputs behind dropout, and the gradient of a table of positions; rows of
  // their rank, and the gradient of those.
  void *lora_inputs = nullptr, *lora_hidden = nullptr, *lora_dhidden = nullptr;
  // A matrix of the base, of the model's type, that lies elsewhere as codes.
  void* dequantized = nullptr;

  int64_t bytes = 0;
};

// Whether the first half of a backward pass makes the parameter's gradient: of a norm or an
// adapter.
bool IsOfFirstHalf(const ParameterRole& role);

// Of a decoder whose samples several ranks share, beside its activations: what attention has of the
// others, and rows of tables of positions that lie apart.
int64_t DecoderContextBytes(const DecoderConfig& config, const DecoderOptions& options,
                            device::Device device);
// Whether it has such tables, GPT-2's.
bool CopiesPositions(const DecoderConfig& config, const DecoderOptions& options);

// Places in `base`, of as many bytes; with null the bytes alone count.
DecoderMemory PlaceDecoder(const DecoderConfig& config, const DecoderOptions& options,
                           const LoraPlan& plan, device::Device device, void* base);

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_DECODER_MEMORY_H_
