#ifndef BRIGADE_PARALLEL_PLAN_TRANSFORMER_H_
#define BRIGADE_PARALLEL_PLAN_TRANSFORMER_H_

// What a planner has to know of a model: extents, and the numbers that follow from them.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::parallel {

// A GPT: blocks of attention and an MLP between an embedding and the logits.
struct Transformer {
  std::string name = {};
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  // Positions of a text.
  int64_t context = 2048;
  int64_t vocabulary = 51200;
  // Heads of keys and values; 0: as many as `heads`.
  int64_t key_value_heads = 0;
  // Between the two products of the MLP; 0: 4 * width.
  int64_t mlp_width = 0;
  // The Llama family: an MLP of three matrices, no biases, positions without parameters, no
  // dropout, and logits with weights of their own.
  bool is_llama = false;

  int64_t key_value_width() const;
  int64_t mlp() const { return mlp_width > 0 ? mlp_width : 4 * width; }
};

// InvalidArgument naming the extent that is not positive, or the two that do not divide.
absl::Status Validate(const Transformer& model);

// The parameters of a block: 12 h^2 + 13 h for a GPT of width h. Of each, `cut` are divided by
// tensor ranks, `whole` are not.
struct LayerParameters {
  int64_t cut = 0;
  int64_t whole = 0;

  int64_t total() const { return cut + whole; }
};
LayerParameters ParametersOfLayer(const Transformer& model);

// Of the tokens' embedding (which GPTs use for their logits too), and of the positions'.
int64_t EmbeddingParameters(const Transformer& model);
int64_t PositionParameters(const Transformer& model);

// All of them.
int64_t Parameters(const Transformer& model);

// Floating-point operations of a step over `texts` texts, of products alone: 72 texts s L h^2
// (1 + s/(6h) + V/(12hL)) for a GPT with full attention; with recomputation of all blocks 96 texts
// s L h^2 (1 + s/(6h) + V/(16hL)). Causal attention has half of the s/(6h); published figures of
// Megatron count all of it. Source: Narayanan et al. 2021 (arXiv 2104.04473), section 5.1;
// Korthikanti et al. 2022 (arXiv 2205.05198), appendix A.
double ModelFlops(const Transformer& model, double texts, bool recomputes_all, bool is_causal);

// The published models by name, and all of their names in the order of size.
//
// Errors       NotFound with all names.
absl::StatusOr<Transformer> TransformerByName(absl::string_view name);
const std::vector<Transformer>& NamedTransformers();

// A GPT of about so many parameters: heads of 128, a number of layers that pipelines divide, and
// about 128 times as wide as deep, as GPT-3 is.
//
// Errors       InvalidArgument naming a number that is not 1e7 to 1e14.
absl::StatusOr<Transformer> TransformerOfParameters(double parameters, int64_t context,
                                                    int64_t vocabulary);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_TRANSFORMER_H_
