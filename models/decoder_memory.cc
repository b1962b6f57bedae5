#include "brigade/models/decoder_memory.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/attention.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::models {
namespace {

// Cuts memory into arrays that begin at multiples of 256 bytes.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}

  void* Take(int64_t bytes) {
    char* const at = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* const base_;
  int64_t bytes_ = 0;
};

absl::Status CheckAtLeastOne(absl::string_view name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a decoder for ", value, " ", name, "; it must be 1 to ", most));
}

}  // namespace

absl::Status Validate(const DecoderConfig& config, const DecoderOptions& options) {
  BRIGADE_RETURN_IF_ERROR(Validate(config));
  if (!precision::IsTrainingFormat(options.dtype) && options.dtype != precision::DType::kFloat64) {
    return absl::InvalidArgumentError(absl::StrCat("a decoder of ",
                                                   precision::ShortName(options.dtype),
                                                   "; it must be fp32, fp16, bf16 or fp64"));
  }
  BRIGADE_RETURN_IF_ERROR(CheckAtLeastOne("samples", options.samples, int64_t{1} << 30));
  BRIGADE_RETURN_IF_ERROR(CheckAtLeastOne("positions", options.positions, config.positions));
  if (options.cached_positions < 0 || options.cached_positions > config.positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("a decoder that keeps ", options.cached_positions,
                     " positions; it must be 0 to ", config.positions));
  }
  if (options.segments && options.cached_positions > 0) {
    return absl::InvalidArgumentError(
        "a decoder that keeps positions of texts of several segments");
  }
  if (options.lora.has_value()) {
    BRIGADE_RETURN_IF_ERROR(Validate(*options.lora));
    if (options.trainable) {
      return absl::InvalidArgumentError("with adapters they alone are trained: `trainable` is set");
    }
    if (options.lora->base == BaseFormat::kInt8Blocks &&
        options.dtype == precision::DType::kFloat64) {
      return absl::InvalidArgumentError("a base of int8 blocks in a decoder of fp64");
    }
  }
  // Rows are numbered by 32 bits (nn/workspace.h).
  BRIGADE_RETURN_IF_ERROR(CheckAtLeastOne("samples times positions",
                                          options.samples * options.positions, int64_t{1} << 31));
  // Sums of whole numbers must not overflow.
  constexpr double kMostBytes = 0x1p60;
  const auto of = [](int64_t number) { return static_cast<double>(number); };
  const double block = of(6 * config.width + 8 * config.projected_width() +
                          8 * config.attention_width() + 4 * config.inner);
  const double columns = of(config.layers + 2) * block + of(config.vocabulary);
  const double bytes =
      8 * columns * of(options.samples) * of(std::max(options.positions, options.cached_positions));
  if (bytes < kMostBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a decoder with some ", bytes, " bytes of activations"));
}

DecoderMemory PlaceDecoder(const DecoderConfig& config, const DecoderOptions& options,
                           const LoraPlan& plan, device::Device device, void* base) {
  const bool llama = config.architecture == Architecture::kLlama;
  const int64_t rows = options.samples * options.positions;
  const int64_t size = precision::SizeOf(options.dtype);
  const int64_t size_of_statistic = options.dtype == precision::DType::kFloat64 ? 8 : 4;
  Arena arena(base);
  const auto matrix = [&](int64_t columns) { return arena.Take(rows * columns * size); };
  const auto norm = [&] {
    NormArrays arrays;
    arrays.y = matrix(config.width);
    if (!llama) arrays.mean = arena.Take(rows * size_of_statistic);
    arrays.inverse = arena.Take(rows * size_of_statistic);
    return arrays;
  };
  const auto block = [&] {
    BlockArrays arrays;
    arrays.norm1 = norm();
    arrays.projected = matrix(config.projected_width());
    arrays.heads = matrix(config.attention_width());
    arrays.log_sum_exp = arena.Take(rows * config.heads * size_of_statistic);
    arrays.middle = matrix(config.width);
    arrays.norm2 = norm();
    arrays.expanded = matrix((llama ? 2 : 1) * config.inner);
    arrays.activated = matrix(config.inner);
    return arrays;
  };

  DecoderMemory memory;
  const bool keeps = options.trains && !options.recompute;
  const size_t streams = static_cast<size_t>(config.layers) + 1;
  for (size_t s = 0; s < streams; ++s) {
    memory.streams.push_back(options.trains || s < 2 ? matrix(config.width)
                                                     : memory.streams[s - 2]);
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    memory.blocks.push_back(keeps || layer == 0 ? block() : memory.blocks.front());
  }
  memory.final_norm = norm();
  memory.logits = matrix(config.vocabulary);
  const int64_t cached = options.samples * options.cached_positions * config.key_value_heads *
                         config.head_width * size;
  for (int64_t layer = 0; cached > 0 && layer < config.layers; ++layer) {
    memory.cached_keys.push_back(arena.Take(cached));
    memory.cached_values.push_back(arena.Take(cached));
  }
  const bool repeats = config.group() > 1;
  if (repeats) memory.repeated = matrix(3 * config.attention_width());
  if (options.trains) {
    memory.dx = matrix(config.width);
    memory.y = matrix(config.width);
    memory.dheads = matrix(config.attention_width());
    memory.dqkv = matrix(3 * config.attention_width());
    memory.dprojected = repeats ? matrix(config.projected_width()) : memory.dqkv;
    memory.dactivated = matrix(config.inner);
    memory.attention_workspace = arena.Take(nn::AttentionWorkspaceBytes(
        {options.dtype, options.samples, options.positions, config.heads, config.attention_width()},
        device));
  }
  if (options.lora.has_value()) {
    const bool drops = options.lora->dropout > 0 && options.trains;
    bool positions = false;
    for (const LoraModule& module : plan.modules) {
      positions |= module.kind == LoraModule::Kind::kPositions;
    }
    const int64_t inputs =
        std::max(drops ? plan.most_inputs : 0, positions && options.trains ? config.width : 0);
    if (inputs > 0) memory.lora_inputs = matrix(inputs);
    memory.lora_hidden = matrix(options.lora->rank);
    if (options.trains) memory.lora_dhidden = matrix(options.lora->rank);
    if (plan.most_dequantized > 0) memory.dequantized = arena.Take(plan.most_dequantized * size);
  }
  memory.bytes = arena.bytes();
  return memory;
}

}  // namespace brigade::models
