#ifndef BRIGADE_EXAMPLES_GPT_MODEL_H_
#define BRIGADE_EXAMPLES_GPT_MODEL_H_

// A GPT-2-style transformer over bytes: what it consists of, and how its weights begin. The passes
// are in transformer.h.
//
// x = tokens[byte] + positions[t]; each block: x += attention(norm(x)), x += mlp(norm(x)), with
// GELU inside an MLP of four times the width; logits = norm(x) tokens^T: the head uses the
// embedding's weights. Source: Radford et al. 2019 (GPT-2), in its order of normalisations.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/parallel/shard.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::gpt {

struct ModelOptions {
  int64_t layers = 4;
  int64_t heads = 4;
  // The width of the residual stream; a multiple of heads.
  int64_t width = 128;
  // The number of bytes in a text.
  int64_t context = 128;
  // Of its matrices (parallel/shard.h): they divide heads and vocabulary. Ranks that share them
  // change no bit; another number of shards does.
  int tensor_shards = 1;
  // Gradients of norms, and of biases of whole widths, are added up by as many blocks of rows as
  // there are shards, so that the ranks that share these can share the rows too.
  bool sequence_parallel = false;
  // Into how many pieces rows are cut, so that products of one piece run beside the exchange of
  // another (parallel/tensor/row_pieces.h). Another number may change bits.
  int tensor_pieces = 1;
};

// InvalidArgument naming the option and its value.
absl::Status Validate(const ModelOptions& options);

// Numbers of the parameters, in the order of the spec. Matrices are [outputs, inputs].
enum Embedding { kTokens, kPositions, kEmbeddingParameters };
enum Block {
  kNorm1Weight,
  kNorm1Bias,
  kQkvWeight,
  kQkvBias,
  kProjectionWeight,
  kProjectionBias,
  kNorm2Weight,
  kNorm2Bias,
  kExpandWeight,
  kExpandBias,
  kContractWeight,
  kContractBias,
  kBlockParameters,
};
enum Head { kFinalNormWeight, kFinalNormBias };

inline int BlockParameter(int64_t layer, Block which) {
  return kEmbeddingParameters + static_cast<int>(layer) * kBlockParameters + which;
}
inline int HeadParameter(const ModelOptions& options, Head which) {
  return kEmbeddingParameters + static_cast<int>(options.layers) * kBlockParameters + which;
}

// How a parameter of the spec is cut: the vocabulary, queries, keys and values by heads, and what
// is inside of the MLP.
parallel::Shard ShardOf(const ModelOptions& options, int parameter);

// Units: the embedding, each block, the head with the tokens tied to it. Of a rank with these of
// the model's tensor_shards: each parameter's part, as parallel::Shard places it.
zero::ModelSpec SpecOf(const ModelOptions& options, const parallel::TensorShards& shards);
zero::ModelSpec SpecOf(const ModelOptions& options);

// Of the whole model.
int64_t ParameterCount(const ModelOptions& options);

// Operations of a token's forward and backward pass, a multiplication and an addition each counting
// one: the matrix products alone, attention included.
double FlopsPerToken(const ModelOptions& options);

// A parameter's first values: normal with deviation 0.02, matrices that end in the residual stream
// with 0.02 / sqrt(2 layers); norms 1, biases 0. An element's value depends on its index in the
// whole parameter, not on the shards of which `values` are the first ones. The same for each seed
// wherever the C library's log and cos are.
void InitializeParameter(const ModelOptions& options, int parameter, uint64_t seed,
                         const parallel::TensorShards& shards, absl::Span<float> values);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_MODEL_H_
