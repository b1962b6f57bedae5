#ifndef BRIGADE_MODELS_LORA_H_
#define BRIGADE_MODELS_LORA_H_

// Low-rank adapters of a decoder's linear layers and embeddings, as PEFT's LoraConfig: which layers
// have one, and what parameters those are.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/models/config.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::models {

// How the weights that are not trained lie in memory. kInt8Blocks: the matrices of linear layers,
// but the head's, as messages of kernels/block_quant, 1 + 1/64 bytes an element, which become
// numbers of the model's type in memory of one matrix before each product; the others as kAsModel.
enum class BaseFormat : uint8_t { kAsModel, kInt8Blocks };

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 8;
  // The share of an adapter's inputs that become 0 in training; of linear layers alone.
  double dropout = 0;
  uint64_t dropout_seed = 0;
  // Which layers have adapters, by their names: those that are in the list, or end with a dot and a
  // name in it ("q_proj", "transformer.wte", "lm_head"); or those that `pattern` matches as a whole
  // (module_pattern.h). "all-linear" as pattern, or alone in the list: all linear layers but the
  // head. With neither: those of PEFT's tables, q_proj and v_proj of Llama and c_attn of GPT-2.
  std::vector<std::string> targets = {};
  std::string pattern = {};
  // The scale is alpha / sqrt(rank) and not alpha / rank.
  bool rank_stabilized = false;
  BaseFormat base = BaseFormat::kAsModel;

  double scale() const;
};

// InvalidArgument naming the option: rank 1 to 2^20, alpha finite, dropout at least 0 and below 1,
// targets or a pattern but not both.
absl::Status Validate(const LoraOptions& options);

// A layer of a decoder with an adapter.
struct LoraModule {
  enum class Kind : uint8_t { kLinear, kTokens, kPositions };

  // As the reference names it: "model.layers.0.self_attn.q_proj".
  std::string name = {};
  Kind kind = Kind::kLinear;
  int unit = 0;
  // Of linear layers; of embeddings rows of the table and its width.
  int64_t inputs = 0;
  int64_t outputs = 0;
  // Whether the layer's own weight is [inputs, outputs].
  bool input_major = false;
  // Numbers in the spec: of the layer's weight, and of the two of the adapter.
  int weight = -1;
  int a = -1;
  int b = -1;

  bool is_embedding() const { return kind != Kind::kLinear; }
  bool is_head() const { return name == "lm_head"; }
};

// What a parameter of a decoder's spec is.
struct ParameterRole {
  // kInt8Base: words of float32 whose bytes are a message of kernels/block_quant. kAdapterA and
  // kAdapterB: of modules[module].
  enum class Kind : uint8_t { kBase, kInt8Base, kAdapterA, kAdapterB } kind = Kind::kBase;
  // Of the base: the name and the shape that the reference has.
  std::string name = {};
  std::vector<int64_t> shape = {};
  int module = -1;

  bool is_base() const { return kind == Kind::kBase || kind == Kind::kInt8Base; }
  bool is_adapter() const { return !is_base(); }
  int64_t size() const;
};

// A spec with its adapters.
struct LoraPlan {
  zero::ModelSpec spec = {};
  std::vector<LoraModule> modules = {};
  // By the parameter's number.
  std::vector<ParameterRole> roles = {};
  // Of linear layers with an adapter, the most inputs; of kInt8Base the largest matrix.
  int64_t most_inputs = 0;
  int64_t most_dequantized = 0;
};

// `spec` with shapes, of a base that is frozen; its parameters keep their places in their unit, and
// behind them come the unit's adapters: lora_A [rank, inputs] and lora_B [outputs, rank] of a
// linear layer, by the names of PEFT's files; of an embedding lora_embedding_A, which is transposed
// [rows, rank] so that rows are looked up and has ".transposed" in its name, and lora_embedding_B
// [width, rank].
//
// Errors       Those of Validate and of the pattern; InvalidArgument if no layer is a target,
//              naming some that there are.
absl::StatusOr<LoraPlan> PlanLora(const DecoderConfig& config, zero::ModelSpec spec,
                                  const LoraOptions& options);

// Without adapters: the roles of the spec alone.
LoraPlan PlanWithoutLora(zero::ModelSpec spec);

// Values of a new adapter, as PEFT has them: A uniform in +-1/sqrt(inputs), B 0; of an embedding A
// 0, B normal with deviation 1. A function of the seed and the parameter's number.
void InitializeAdapter(const LoraModule& module, ParameterRole::Kind kind, int parameter,
                       uint64_t seed, absl::Span<float> values);

// Between numbers and the words of a kInt8Base parameter, on the host: the bytes that BlockQuantize
// and BlockDequantize make of float32.
void QuantizeToWords(absl::Span<const float> values, absl::Span<float> words);
void DequantizeWords(absl::Span<const float> words, absl::Span<float> values);

// The words of so many numbers.
int64_t WordsOf(int64_t size);

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_LORA_H_
