#ifndef BRIGADE_PARALLEL_TENSOR_EMBEDDING_H_
#define BRIGADE_PARALLEL_TENSOR_EMBEDDING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/stream.h"
#include "brigade/nn/token_ids.h"
#include "brigade/parallel/shard.h"
#include "brigade/parallel/tensor/shard_sums.h"
#include "brigade/precision/dtype.h"

namespace brigade::parallel {

// The ids as this rank sees them: a window on its part of the vocabulary, of which each shard has
// as many neighbours. InvalidArgument naming both numbers for a vocabulary that the shards do not
// divide.
absl::StatusOr<nn::TokenIds> VocabularyWindow(const nn::TokenIds& ids, const TensorShards& shards);

// x[r] = tokens[id of r], and + positions unless they are null, as nn::Embedding, with its bits: of
// a table whose rows are cut over shards. `window`: VocabularyWindow of the ids. A rank looks up
// what it has, the others give 0.
//
// The gradient is nn::EmbeddingBackward of the window and all rows of dx, without an exchange: that
// of positions is the same on all ranks.
//
// Shapes       tokens [vocabulary / ranks, width], positions [context, width], x [rows, width], or
//              with SumPart::kOwn the own part of the rows.
// Traffic      ShardSums::SumOfOne of rows * width: a call of all ranks.
// Errors       Those of nn::Embedding and ShardSums::Sum.
absl::Status VocabularyEmbedding(const nn::TokenIds& window, int64_t width, const void* tokens,
                                 const void* positions, void* x, ShardSums& sums,
                                 device::Stream& stream);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_TENSOR_EMBEDDING_H_
