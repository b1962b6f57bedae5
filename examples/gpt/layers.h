#ifndef BRIGADE_EXAMPLES_GPT_LAYERS_H_
#define BRIGADE_EXAMPLES_GPT_LAYERS_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/block_layout.h"
#include "brigade/examples/gpt/pass_collectives.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/pointwise.h"
#include "brigade/nn/texts.h"
#include "brigade/nn/workspace.h"
#include "brigade/parallel/context/ring_attention.h"
#include "brigade/parallel/context/ulysses.h"
#include "brigade/parallel/tensor/cross_entropy.h"
#include "brigade/parallel/tensor/row_gradients.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/parallel/tensor/shard_sums.h"

namespace brigade::gpt {

// The model's layers on one rank of a PassShape: those of nn/ where it is alone, of parallel/ where
// others have the rest of the weights, rows or positions. What is "cut" is of this rank's tensor
// shards, [shards, rows, columns of a shard]; "own" rows are those of the residual stream that it
// has; weights are this rank's part.
//
// Memory       bytes(), and Blas::ScratchBytes of WorkspaceBytes: scratch, at Create; and the
//              communicators' workspaces.
// Stream       Enqueued on the one stream of all calls, and with tensor_overlap on one beside it
//              (parallel::ShardSums); allocates nothing, never waits. Calls of all ranks of the
//              groups.
// Errors       Create: InvalidArgument for a shape or groups that do not fit.
class Layers {
 public:
  static absl::StatusOr<std::unique_ptr<Layers>> Create(const PassShape& shape,
                                                        const PassGroups& groups,
                                                        device::Context& context);

  // Of the largest matrix product.
  static int64_t WorkspaceBytes(const PassShape& shape);
  // Of sums, of attention, and of what ranks share.
  int64_t bytes() const;
  // The same beforehand, on the device of a context, of which nothing is allocated. Errors of
  // nn::Workspace.
  static absl::StatusOr<int64_t> Bytes(const PassShape& shape, const device::Context& context);

  // y [rows, cut outputs] = x [rows, width] weight^T, and + bias unless it is null. Of rows that
  // are gathered, here and below, products wait for what they read.
  absl::Status Column(const void* x, const void* weight, const void* bias, int64_t outputs, void* y,
                      device::Stream& stream);
  // Of x, weight and bias; dx of own rows.
  absl::Status ColumnBackward(const void* x, const void* weight, int64_t outputs, const void* dy,
                              void* dx, nn::Gradient dweight, nn::Gradient dbias,
                              device::Stream& stream);
  // y [own rows, width] = x [rows, cut inputs] weight^T.
  absl::Status Row(const void* x, int64_t inputs, const void* weight, void* y,
                   device::Stream& stream);
  // From dy of all rows. dx may be x unless shape.gathers_pieces().
  absl::Status RowBackward(const void* x, int64_t inputs, const void* weight, const void* dy,
                           void* dx, nn::Gradient dweight, device::Stream& stream);

  // All rows of `own` [own rows, width] where ranks share them: in `all`, for the layers of this
  // class, and for others after they have come; else what it was given.
  absl::StatusOr<const void*> GatherRows(const void* own, void* all, device::Stream& stream);
  // A norm of own rows: its result in `y`, of own rows if memory.has_own_norms, and all rows of it.
  absl::StatusOr<const void*> Norm(const nn::LayerNormInput& input, const void* bias, void* y,
                                   const BlockMemory& memory, device::Stream& stream);
  // All rows of what Norm has left in `y`.
  absl::StatusOr<const void*> GatherNorm(void* y, const BlockMemory& memory,
                                         device::Stream& stream);

  // Gradients of parameters that see own rows. Under sequence parallelism they are of blocks of
  // rows, `place` widths from where the first one's is, until SumRowGradients adds them up.
  absl::Status NormBackward(const nn::LayerNormInput& input, const void* dy, nn::Gradient dx,
                            nn::Gradient dweight, nn::Gradient dbias, int place,
                            device::Stream& stream);
  absl::Status BiasBackward(const void* dy, nn::Gradient dbias, int place, device::Stream& stream);
  // In the order of their places.
  absl::Status SumRowGradients(absl::Span<const nn::Gradient> gradients, device::Stream& stream);

  // Attention of a block, from kQkv to kAttention. Where ranks exchange heads, GatherQkv makes the
  // kHeadQkv that the others begin with; else it does nothing.
  absl::Status GatherQkv(const BlockMemory& memory, device::Stream& stream);
  absl::Status Attention(const BlockMemory& memory, device::Stream& stream);
  // memory.dqkv from memory.dwidth.
  absl::Status AttentionBackward(const BlockMemory& memory, device::Stream& stream);

  // A block's kGelu from kExpanded, with the bias or without; and the gradient, in memory.dmlp.
  absl::Status AddBiasGelu(const BlockMemory& memory, const void* bias, device::Stream& stream);
  absl::Status Gelu(const BlockMemory& memory, device::Stream& stream);
  absl::Status GeluBackward(const BlockMemory& memory, device::Stream& stream);

  // x of own rows, from tokens and all positions; and their gradients from dx of all rows.
  absl::Status Embedding(const nn::Texts& texts, const void* tokens, const void* positions, void* x,
                         device::Stream& stream);
  absl::Status EmbeddingBackward(const nn::Texts& texts, const void* dx, nn::Gradient dtokens,
                                 nn::Gradient dpositions, device::Stream& stream);

  // Losses of all rows from cut logits, which then become the gradient of seed * (their mean);
  // `softmax` is HeadMemory's.
  absl::Status CrossEntropy(const nn::Texts& texts, const void* logits, void* softmax, void* losses,
                            device::Stream& stream);
  absl::Status CrossEntropyBackward(const nn::Texts& texts, void* logits, const void* softmax,
                                    const float* seed, device::Stream& stream);

 private:
  Layers(const PassShape& shape, const PassGroups& groups) : shape_(shape), groups_(groups) {}

  int64_t width() const { return shape_.model.width; }
  int local_shards() const { return shape_.shards().local(); }
  nn::MatrixShape OwnRows() const { return {shape_.dtype, shape_.own_rows(), width()}; }
  // Of all of this rank's shards, for what does not tell columns apart.
  nn::MatrixShape AllShards(int64_t columns) const {
    return {shape_.dtype, local_shards() * shape_.rows(), shape_.OfShard(columns)};
  }
  // Where one of this rank's shards is in an array of `columns`, or of a block.
  void* PartOf(void* array, int64_t columns, int shard) const {
    return static_cast<char*>(array) +
           shape_.bytes_of(shard * shape_.rows() * shape_.OfShard(columns));
  }
  void* PartOf(const BlockMemory& memory, BlockArray array, int shard) const;
  parallel::Ulysses::Saved HeadsOf(const BlockMemory& memory, int shard) const;
  // Copies the rows of this rank's positions from the whole table to own_positions_, or back.
  absl::Status CopyPositions(void* table, bool to_table, device::Stream& stream);
  // Of these rows alone.
  nn::LayerNormInput RowsOf(nn::LayerNormInput input, const parallel::RowRange& rows) const;
  // Calls visit(piece, block, its rows) for each of this rank's blocks of row gradients.
  absl::Status ForEachBlock(
      absl::FunctionRef<absl::Status(int, int, const parallel::RowRange&)> visit) const;

  const PassShape shape_;
  const PassGroups groups_;
  std::unique_ptr<nn::Blas> blas_;
  nn::Workspace workspace_;
  // Empty where ranks share texts: those have ulysses_ or ring_, which are null elsewhere.
  device::Buffer attention_workspace_;
  std::unique_ptr<parallel::Ulysses> ulysses_;
  std::unique_ptr<parallel::RingAttention> ring_;
  // Rows of the table of positions, side by side; empty where they are in the table.
  device::Buffer own_positions_;
  std::unique_ptr<parallel::ShardSums> sums_;
  // Null for one shard.
  std::unique_ptr<parallel::VocabularyCrossEntropy> cross_entropy_;
  // Null without sequence parallelism.
  std::unique_ptr<parallel::RowGradients> row_gradients_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_LAYERS_H_
