#include "brigade/models/decoder_options.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::models {
namespace {

absl::Status CheckStage(const DecoderConfig& config, const StageUnits& stage) {
  const int units = static_cast<int>(config.layers) + 2;
  int end = 0;
  for (const parallel::StageRange& chunk : stage.chunks) {
    if (chunk.first < end || chunk.end <= chunk.first || chunk.end > units) {
      return absl::InvalidArgumentError(absl::StrCat("a decoder for the units ", chunk.first,
                                                     " to ", chunk.end, " of ", units, ", behind ",
                                                     end));
    }
    end = chunk.end;
  }
  if (stage.slots >= (stage.chunks.empty() ? 0 : 1) && stage.slots <= 1 << 20 &&
      stage.deferred >= 0 && stage.deferred <= 1 << 20) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("a decoder for a stage with ", stage.slots,
                                                 " slots and ", stage.deferred,
                                                 " for halves of backward passes"));
}

// Which of the model's numbers the shards do not divide, and what does not go with them.
absl::Status CheckTensor(const DecoderConfig& config, const DecoderOptions& options) {
  const TensorOptions& tensor = options.tensor;
  const auto invalid = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("a decoder of ", tensor.shards.count, " tensor shards: ", what...));
  };
  // What has no passes has no ranks to call.
  const bool has_passes = !options.stage.has_value() || !options.stage->chunks.empty();
  BRIGADE_RETURN_IF_ERROR(has_passes ? parallel::CheckRanks(tensor.shards, tensor.ranks)
                                     : parallel::Validate(tensor.shards));
  if (tensor.pieces < 1 || tensor.pieces > parallel::kMostPieces) {
    return invalid("products in ", tensor.pieces, " pieces; it must be 1 to ",
                   parallel::kMostPieces);
  }
  if (!tensor.is_sharded()) {
    if (tensor.pieces == 1) return absl::OkStatus();
    return invalid("products in ", tensor.pieces, " pieces, of which nothing is exchanged");
  }
  if (options.cached_positions > 0) return invalid("it keeps no positions to go on from");
  for (const auto& [number, name] : {std::pair(config.heads, "heads"),
                                     std::pair(config.key_value_heads, "heads of keys and values"),
                                     std::pair(config.inner, "columns inside of the MLP")}) {
    if (number % tensor.shards.count == 0) continue;
    return invalid("they do not divide its ", number, " ", name);
  }
  return absl::OkStatus();
}

absl::Status CheckContext(const DecoderConfig& config, const DecoderOptions& options) {
  const parallel::ContextRanks& ranks = options.context_ranks;
  if (options.segments) {
    return absl::InvalidArgumentError(
        "a decoder of texts of several segments, whose positions are cut over context ranks");
  }
  if (options.cached_positions > 0) {
    return absl::InvalidArgumentError(
        "a decoder that keeps positions of texts that are cut over context ranks");
  }
  if (options.whole_positions() > config.positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("a decoder for ", options.positions, " positions on each of ", ranks.size(),
                     " context ranks; all may be at most ", config.positions));
  }
  BRIGADE_RETURN_IF_ERROR(ranks.Check(options.whole_positions()));
  if (const int64_t heads = config.heads / options.tensor.shards.count;
      ranks.exchanges_heads() && heads % ranks.size() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a decoder whose ", heads, options.tensor.is_sharded() ? " heads of a shard " : " heads ",
        ranks.size(), " context ranks cannot share; in a ring they may"));
  }
  return absl::OkStatus();
}

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
  BRIGADE_RETURN_IF_ERROR(CheckTensor(config, options));
  if (options.context_ranks.share()) BRIGADE_RETURN_IF_ERROR(CheckContext(config, options));
  double slots = 1;
  if (options.stage.has_value()) {
    BRIGADE_RETURN_IF_ERROR(CheckStage(config, *options.stage));
    if (options.cached_positions > 0) {
      return absl::InvalidArgumentError("a decoder that keeps positions in a stage of a pipeline");
    }
    slots += options.stage->slots + options.stage->deferred;
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
                          12 * config.attention_width() + 4 * config.inner);
  const double columns = of(config.layers + 2) * block + of(config.vocabulary);
  const double bytes = 8 * slots * columns * of(options.samples) *
                       of(std::max(options.positions, options.cached_positions));
  if (bytes < kMostBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a decoder with some ", bytes, " bytes of activations"));
}

bool CutsVocabulary(const DecoderConfig& config, const parallel::TensorShards& shards) {
  return shards.count > 1 && config.vocabulary % shards.count == 0;
}

DecoderConfig ShardOf(const DecoderConfig& config, const parallel::TensorShards& shards) {
  DecoderConfig shard = config;
  shard.heads /= shards.count;
  shard.key_value_heads /= shards.count;
  shard.inner /= shards.count;
  if (CutsVocabulary(config, shards)) shard.vocabulary /= shards.count;
  return shard;
}

bool HasUnit(const DecoderConfig& config, const DecoderOptions& options, int unit) {
  if (!options.stage.has_value()) return unit < static_cast<int>(config.layers) + 2;
  return std::any_of(options.stage->chunks.begin(), options.stage->chunks.end(),
                     [&](const auto& chunk) { return unit >= chunk.first && unit < chunk.end; });
}

int64_t BlocksOf(const DecoderConfig& config, const DecoderOptions& options) {
  int64_t blocks = 0;
  for (int unit = 1; unit <= static_cast<int>(config.layers); ++unit) {
    if (HasUnit(config, options, unit)) ++blocks;
  }
  return blocks;
}

}  // namespace brigade::models
