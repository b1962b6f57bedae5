#include "brigade/examples/gpt/config_grid.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/counted.h"
#include "brigade/parallel/shard.h"

namespace brigade::gpt {
namespace {

// Pieces of products beside whose exchange others are multiplied, where nobody says how many.
// Untuned; as many as elsewhere (TransformerEngine).
constexpr int kDefaultPieces = 4;

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

}  // namespace

ModelParallelism Merged(const Settings& s, const ModelParallelism& flags) {
  const auto chosen = [](int flag, int of_config, int otherwise) {
    return flag != 0 ? flag : of_config != 0 ? of_config : otherwise;
  };
  const auto either = [](const auto& flag, const auto& of_config) {
    return flag.has_value() ? flag : of_config;
  };
  ModelParallelism merged;
  merged.tensor = chosen(flags.tensor, std::max(s.autotp_size, s.tp_size), 1);
  merged.context = chosen(flags.context, s.sequence_parallel_size, 1);
  merged.tensor_shards = chosen(flags.tensor_shards, s.tensor_shards, merged.tensor);
  merged.sequence_parallel = flags.sequence_parallel || s.sequence_parallel;
  merged.context_exchange = either(flags.context_exchange, s.context_exchange);
  merged.pipeline = chosen(flags.pipeline, s.stages, 1);
  merged.schedule = either(flags.schedule, s.pipeline_schedule);
  merged.partition = either(flags.partition, either(s.partition, s.deepspeed_partition));
  return merged;
}

int PiecesOf(const Settings& s, const ModelParallelism& flags) {
  if (flags.tensor_overlap != 0) return flags.tensor_overlap;
  if (s.tensor_pieces != 0) return s.tensor_pieces;
  return s.tensor_overlap ? kDefaultPieces : 1;
}

absl::StatusOr<parallel::GridShape> GridOf(const ModelParallelism& model, int ranks) {
  // Flags may have any numbers.
  constexpr int kMost = 1 << 15;
  for (const auto& [name, number] :
       {std::pair("tensor", model.tensor), std::pair("context", model.context),
        std::pair("tensor shards", model.tensor_shards), std::pair("pipeline", model.pipeline)}) {
    if (number >= 1 && number <= kMost) continue;
    return Invalid(name, ": ", number, "; it must be 1 to ", kMost);
  }
  if (model.context_exchange.has_value() && model.context == 1) {
    return Invalid("context_exchange has no effect: no ranks share texts, context is 1");
  }
  for (const auto& [name, is_given] : {std::pair("schedule", model.schedule.has_value()),
                                       std::pair("partition", model.partition.has_value())}) {
    if (!is_given || model.pipeline > 1) continue;
    return Invalid(name, " has no effect: no ranks share the model's layers, pipeline is 1");
  }
  BRIGADE_RETURN_IF_ERROR(parallel::Validate(
      parallel::TensorShards{.count = model.tensor_shards, .ranks = model.tensor}));
  // At most 2^45.
  const int64_t of_text = int64_t{model.tensor} * model.context * model.pipeline;
  if (ranks % of_text != 0) {
    const std::string stages =
        model.pipeline == 1 ? "" : absl::StrCat(" x pipeline ", model.pipeline);
    return Invalid(Counted(ranks, "rank"), " cannot be a grid of tensor ", model.tensor,
                   " x context ", model.context, " x data", stages, ": ", of_text,
                   " does not divide ", ranks);
  }
  return parallel::GridShape{.tensor = model.tensor,
                             .context = model.context,
                             .data = static_cast<int>(ranks / of_text),
                             .pipeline = model.pipeline};
}

absl::Status CheckPipeline(const parallel::PipelineShape& shape) {
  const std::string schedule = parallel::ToString(shape.schedule);
  if (const int chunks = shape.schedule.chunks; chunks > kMaxChunks) {
    return Invalid("brigade.schedule (--schedule) is \"", schedule, "\", of ", chunks,
                   " chunks on each stage; it must be at most ", kMaxChunks);
  }
  const absl::Status status = parallel::Validate(shape);
  if (status.ok()) return status;
  return Invalid("pipeline.stages (--pipeline) ", shape.stages, ", brigade.schedule (--schedule) ",
                 schedule, ", gradient_accumulation_steps ", shape.micro_batches, ": ",
                 status.message());
}

}  // namespace brigade::gpt
