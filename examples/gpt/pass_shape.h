#ifndef BRIGADE_EXAMPLES_GPT_PASS_SHAPE_H_
#define BRIGADE_EXAMPLES_GPT_PASS_SHAPE_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/nn/attention.h"
#include "brigade/parallel/context/context_ranks.h"
#include "brigade/parallel/context/zigzag.h"
#include "brigade/parallel/shard.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/parallel/tensor/shard_sums.h"
#include "brigade/precision/dtype.h"
#include "brigade/train/config/context_exchange.h"

namespace brigade::gpt {

// What one rank's passes over a micro-batch consist of: the model, the texts, and the rank's part
// of both. Without ranks that share them, all of it.
struct PassShape {
  ModelOptions model = {};
  // Texts.
  int64_t batch = 1;
  // Of weights, activations and their gradients.
  precision::DType dtype = precision::DType::kFloat32;
  // That share the model's tensor shards, and under sequence parallelism the rows.
  int tensor_ranks = 1;
  int tensor_rank = 0;
  // That share each text: rank r has part r of its positions or, in a ring, two parts (zigzag.h).
  int context_ranks = 1;
  int context_rank = 0;
  train::ContextExchange context_exchange = train::ContextExchange::kUlysses;
  // Under sequence parallelism norms that are saved are saved of all rows, not of the rank's own,
  // which the backward pass would gather again.
  bool keep_gathered = false;
  // Ranks exchange rows of one piece of a product while others are multiplied. It changes no bit.
  bool tensor_overlap = false;
  // Of sums over tensor shards between ranks. Only with kFloat32 their number changes no bit.
  parallel::SumWire sum_wire = parallel::SumWire::kFloat32;

  parallel::TensorShards shards() const { return {model.tensor_shards, tensor_ranks, tensor_rank}; }

  // Whether ranks that share texts attend in a ring, or exchange heads for positions.
  bool is_ring() const {
    return context_ranks > 1 && context_exchange == train::ContextExchange::kRing;
  }
  bool exchanges_heads() const { return context_ranks > 1 && !is_ring(); }
  // Of a text, on this rank; and where they are in the text.
  int64_t positions() const { return model.context / context_ranks; }
  absl::InlinedVector<parallel::PositionRun, 2> runs() const {
    return parallel::PositionRunsOf(context_exchange, model.context, context_ranks, context_rank);
  }
  // Of products: all texts' positions of this rank.
  int64_t rows() const { return batch * positions(); }
  // Of the residual stream.
  int64_t own_rows() const { return shares_rows() ? rows() / tensor_ranks : rows(); }
  bool shares_rows() const { return model.sequence_parallel && tensor_ranks > 1; }
  // How rows are cut: into pieces, and what of each is this rank's.
  parallel::RowPieces Pieces() const {
    return {.rows = rows(),
            .pieces = model.tensor_pieces,
            .part = model.sequence_parallel ? parallel::SumPart::kOwn : parallel::SumPart::kAll,
            .shards = shards()};
  }
  // Products begin with pieces of rows, which may still be on their way from other ranks.
  bool gathers_pieces() const { return model.sequence_parallel && Pieces().count() > 1; }

  // Of `columns` that are cut: one shard's.
  int64_t OfShard(int64_t columns) const { return columns / model.tensor_shards; }
  // Elements of `columns` that are cut: all of this rank's shards, [shards, rows, columns].
  int64_t Cut(int64_t columns) const { return rows() * columns / tensor_ranks; }
  int64_t bytes_of(int64_t elements) const { return elements * precision::SizeOf(dtype); }
  // Of [own_rows, width]: the residual stream.
  int64_t residual_bytes() const { return bytes_of(own_rows() * model.width); }

  // One shard's heads over this rank's positions, and over all positions of the texts.
  nn::AttentionShape AttentionOfPart() const { return Attention(positions()); }
  nn::AttentionShape AttentionOfTexts() const { return Attention(model.context); }

 private:
  nn::AttentionShape Attention(int64_t context) const {
    return {dtype, batch, context, OfShard(model.heads), OfShard(model.width)};
  }
};

// InvalidArgument naming the numbers that do not fit: those of the model, or texts, or what ranks
// cannot share.
absl::Status Validate(const PassShape& shape);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_PASS_SHAPE_H_
