#include "brigade/examples/gpt/pass_shape.h"

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::gpt {

absl::Status Validate(const PassShape& shape) {
  BRIGADE_RETURN_IF_ERROR(Validate(shape.model));
  const auto invalid = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what...));
  };
  if (shape.batch < 1) return invalid("batch is ", shape.batch, "; it must be at least 1");
  BRIGADE_RETURN_IF_ERROR(parallel::Validate(shape.shards()));
  const int ranks = shape.context_ranks;
  if (ranks < 1 || shape.context_rank < 0 || shape.context_rank >= ranks) {
    return invalid("context rank ", shape.context_rank, " of ", ranks);
  }
  if (shape.model.context % ranks != 0) {
    return invalid(ranks, " context ranks cannot share texts of ", shape.model.context, " bytes");
  }
  if (shape.is_ring()) {
    BRIGADE_RETURN_IF_ERROR(parallel::CheckZigzag(shape.model.context, ranks));
  }
  const int64_t heads = shape.OfShard(shape.model.heads);
  if (shape.exchanges_heads() && heads % ranks != 0) {
    return invalid(ranks, " context ranks cannot share the ", heads, " heads of a tensor shard");
  }
  if (!shape.model.sequence_parallel) return absl::OkStatus();
  if (shape.rows() % shape.model.tensor_shards != 0) {
    return invalid("sequence parallelism: ", shape.rows(), " rows (", shape.batch, " texts of ",
                   shape.positions(), " positions) cannot be cut into ", shape.model.tensor_shards,
                   " blocks");
  }
  if (!precision::IsTrainingFormat(shape.dtype)) {
    return invalid("sequence parallelism in ", precision::ShortName(shape.dtype),
                   "; it must be fp32, fp16 or bf16");
  }
  return absl::OkStatus();
}

}  // namespace brigade::gpt
