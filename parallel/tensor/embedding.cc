#include "brigade/parallel/tensor/embedding.h"

#include "absl/strings/str_cat.h"
#include "brigade/nn/embedding.h"
#include "brigade/parallel/tensor/row_pieces.h"

namespace brigade::parallel {

absl::StatusOr<nn::TokenIds> VocabularyWindow(const nn::TokenIds& ids, const TensorShards& shards) {
  if (ids.vocabulary() % shards.count != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a vocabulary of ", ids.vocabulary(), " cannot be cut into ", shards.count, " shards"));
  }
  const int64_t each = ids.vocabulary() / shards.count;
  return ids.Window(shards.first() * each, shards.local() * each);
}

absl::Status VocabularyEmbedding(const nn::TokenIds& window, int64_t width, const void* tokens,
                                 const void* positions, void* x, ShardSums& sums,
                                 device::Stream& stream) {
  const auto look_up = [&](int, const RowRange&, void* rows, precision::DType dtype) {
    return nn::Embedding(window, dtype, width, tokens, positions, rows, stream);
  };
  return sums.SumOfOne(window.rows(), width, look_up, x, stream);
}

}  // namespace brigade::parallel
