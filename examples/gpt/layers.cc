#include "brigade/examples/gpt/layers.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/parallel/tensor/embedding.h"
#include "brigade/parallel/tensor/linear.h"

namespace brigade::gpt {
namespace {

// So many bytes behind.
const void* Behind(const void* array, int64_t bytes) {
  return static_cast<const char*>(array) + bytes;
}
void* Behind(void* array, int64_t bytes) { return static_cast<char*>(array) + bytes; }

// Of the layers' sums.
nn::Workspace::Sizes SumsOf(const PassShape& shape) {
  const int64_t width = shape.model.width;
  return {
      .rows = shape.rows(), .sums = std::max(2 * width, shape.OfShard(4 * width)), .width = width};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layers>> Layers::Create(const PassShape& shape,
                                                       const PassGroups& groups,
                                                       device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(Validate(shape));
  std::unique_ptr<Layers> layers(new Layers(shape, groups));
  const int64_t width = shape.model.width;
  BRIGADE_ASSIGN_OR_RETURN(layers->blas_, nn::Blas::Create(context, WorkspaceBytes(shape)));
  BRIGADE_ASSIGN_OR_RETURN(layers->workspace_,
                           nn::Workspace::Create(context, shape.dtype, SumsOf(shape)));
  BRIGADE_ASSIGN_OR_RETURN(layers->sums_,
                           parallel::ShardSums::Create(SumOptions(shape), groups.tensor, context));
  if (shape.model.tensor_shards > 1) {
    BRIGADE_ASSIGN_OR_RETURN(layers->cross_entropy_,
                             parallel::VocabularyCrossEntropy::Create(CrossEntropyOptions(shape),
                                                                      groups.tensor, context));
  }
  if (shape.model.sequence_parallel) {
    BRIGADE_ASSIGN_OR_RETURN(
        layers->row_gradients_,
        parallel::RowGradients::Create(RowGradientOptionsOf(shape), groups.tensor, context));
  }
  const nn::AttentionShape attention = shape.AttentionOfTexts();
  if (shape.context_ranks > 1) {
    if (groups.context == nullptr || groups.context->size() != shape.context_ranks ||
        groups.context->rank() != shape.context_rank) {
      return absl::InvalidArgumentError("the context group is not that of the shape");
    }
    if (!shape.is_ring()) {
      BRIGADE_ASSIGN_OR_RETURN(layers->ulysses_,
                               parallel::Ulysses::Create(attention, *groups.context, context));
      return layers;
    }
    BRIGADE_ASSIGN_OR_RETURN(layers->ring_,
                             parallel::RingAttention::Create(attention, *groups.context, context));
    BRIGADE_ASSIGN_OR_RETURN(layers->own_positions_,
                             context.Allocate(shape.bytes_of(shape.positions() * width),
                                              device::Purpose::kScratch, "own positions"));
    return layers;
  }
  BRIGADE_ASSIGN_OR_RETURN(
      layers->attention_workspace_,
      context.Allocate(nn::AttentionWorkspaceBytes(attention, context.device()),
                       device::Purpose::kScratch, "workspace of attention"));
  return layers;
}

int64_t Layers::WorkspaceBytes(const PassShape& shape) {
  const auto bytes = [&](int64_t columns) {
    return nn::Blas::WorkspaceBytes(shape.dtype, shape.rows(), shape.OfShard(columns),
                                    shape.model.width);
  };
  return std::max(bytes(4 * shape.model.width), bytes(nn::kVocabulary));
}

absl::StatusOr<int64_t> Layers::Bytes(const PassShape& shape, const device::Context& context) {
  const device::Device device = context.device();
  const nn::AttentionShape attention = shape.AttentionOfTexts();
  BRIGADE_ASSIGN_OR_RETURN(int64_t bytes,
                           nn::Workspace::Bytes(context, shape.dtype, SumsOf(shape)));
  bytes += parallel::ShardSums::Bytes(SumOptions(shape));
  if (shape.model.tensor_shards > 1) {
    bytes += parallel::VocabularyCrossEntropy::Bytes(CrossEntropyOptions(shape));
  }
  if (shape.model.sequence_parallel) {
    bytes += parallel::RowGradients::Bytes(RowGradientOptionsOf(shape));
  }
  if (shape.is_ring()) {
    return bytes + parallel::RingAttention::Bytes(attention, shape.context_ranks, device) +
           shape.bytes_of(shape.positions() * shape.model.width);
  }
  return bytes + (shape.context_ranks > 1
                      ? parallel::Ulysses::Bytes(attention, shape.context_ranks, device)
                      : nn::AttentionWorkspaceBytes(attention, device));
}

int64_t Layers::bytes() const {
  int64_t bytes = workspace_.memory().bytes() + attention_workspace_.bytes() +
                  parallel::ShardSums::Bytes(SumOptions(shape_));
  if (cross_entropy_ != nullptr) {
    bytes += parallel::VocabularyCrossEntropy::Bytes(CrossEntropyOptions(shape_));
  }
  if (row_gradients_ != nullptr) {
    bytes += parallel::RowGradients::Bytes(RowGradientOptionsOf(shape_));
  }
  if (ulysses_ != nullptr) {
    bytes += parallel::Ulysses::Bytes(shape_.AttentionOfTexts(), shape_.context_ranks,
                                      workspace_.memory().device());
  }
  if (ring_ != nullptr) {
    bytes += parallel::RingAttention::Bytes(shape_.AttentionOfTexts(), shape_.context_ranks,
                                            workspace_.memory().device()) +
             own_positions_.bytes();
  }
  return bytes;
}

absl::Status Layers::Column(const void* x, const void* weight, const void* bias, int64_t outputs,
                            void* y, device::Stream& stream) {
  return parallel::ColumnLinear(
      {shape_.dtype, x, weight, shape_.rows(), width(), shape_.OfShard(outputs)}, bias, y, *sums_,
      *blas_, stream);
}

absl::Status Layers::ColumnBackward(const void* x, const void* weight, int64_t outputs,
                                    const void* dy, void* dx, nn::Gradient dweight,
                                    nn::Gradient dbias, device::Stream& stream) {
  return parallel::ColumnLinearBackward(
      {shape_.dtype, x, weight, shape_.rows(), width(), shape_.OfShard(outputs)}, dy, dx, dweight,
      dbias, *sums_, *blas_, workspace_, stream);
}

absl::Status Layers::Row(const void* x, int64_t inputs, const void* weight, void* y,
                         device::Stream& stream) {
  return parallel::RowLinear(
      {shape_.dtype, x, weight, shape_.rows(), shape_.OfShard(inputs), width()}, y, *sums_, *blas_,
      stream);
}

absl::Status Layers::RowBackward(const void* x, int64_t inputs, const void* weight, const void* dy,
                                 void* dx, nn::Gradient dweight, device::Stream& stream) {
  return parallel::RowLinearBackward(
      {shape_.dtype, x, weight, shape_.rows(), shape_.OfShard(inputs), width()}, dy, dx, dweight,
      *sums_, *blas_, workspace_, stream);
}

absl::StatusOr<const void*> Layers::GatherRows(const void* own, void* all, device::Stream& stream) {
  if (!shape_.shares_rows()) return own;
  BRIGADE_RETURN_IF_ERROR(sums_->GatherRows(own, all, shape_.rows(), width(), stream));
  return all;
}

absl::StatusOr<const void*> Layers::Norm(const nn::LayerNormInput& input, const void* bias, void* y,
                                         const BlockMemory& memory, device::Stream& stream) {
  if (memory.has_own_norms || !shape_.shares_rows()) {
    BRIGADE_RETURN_IF_ERROR(nn::LayerNorm(input, bias, y, stream));
    return GatherRows(y, memory.gathered, stream);
  }
  // In their places among all rows.
  const parallel::RowPieces pieces = shape_.Pieces();
  for (int p = 0; p < pieces.count(); ++p) {
    const int64_t to = shape_.bytes_of(pieces.OwnAmongAll(p).first * width());
    BRIGADE_RETURN_IF_ERROR(
        nn::LayerNorm(RowsOf(input, pieces.Own(p)), bias, Behind(y, to), stream));
  }
  return GatherRows(nullptr, y, stream);
}

absl::StatusOr<const void*> Layers::GatherNorm(void* y, const BlockMemory& memory,
                                               device::Stream& stream) {
  return memory.has_own_norms ? GatherRows(y, memory.gathered, stream) : y;
}

nn::LayerNormInput Layers::RowsOf(nn::LayerNormInput input, const parallel::RowRange& rows) const {
  const int64_t of_statistic =
      shape_.dtype == precision::DType::kFloat64 ? sizeof(double) : sizeof(float);
  input.rows = rows.count;
  input.x = Behind(input.x, shape_.bytes_of(rows.first * width()));
  input.mean = Behind(input.mean, rows.first * of_statistic);
  input.inverse_deviation = Behind(input.inverse_deviation, rows.first * of_statistic);
  return input;
}

absl::Status Layers::ForEachBlock(
    absl::FunctionRef<absl::Status(int, int, const parallel::RowRange&)> visit) const {
  const parallel::RowPieces pieces = shape_.Pieces();
  for (int p = 0; p < pieces.count(); ++p) {
    for (int b = 0; b < local_shards(); ++b) {
      BRIGADE_RETURN_IF_ERROR(visit(p, b, pieces.Block(p, b)));
    }
  }
  return absl::OkStatus();
}

absl::Status Layers::NormBackward(const nn::LayerNormInput& input, const void* dy, nn::Gradient dx,
                                  nn::Gradient dweight, nn::Gradient dbias, int place,
                                  device::Stream& stream) {
  if (row_gradients_ == nullptr) {
    return nn::LayerNormBackward(input, dy, dx, dweight, dbias, workspace_, stream);
  }
  const int64_t offset = place * width();
  return ForEachBlock([&](int piece, int block, const parallel::RowRange& rows) {
    const int64_t at = shape_.bytes_of(rows.first * width());
    return nn::LayerNormBackward(
        RowsOf(input, rows), Behind(dy, at), {Behind(dx.data, at), dx.accumulate},
        {row_gradients_->Block(piece, block, offset)},
        {row_gradients_->Block(piece, block, offset + width())}, workspace_, stream);
  });
}

absl::Status Layers::BiasBackward(const void* dy, nn::Gradient dbias, int place,
                                  device::Stream& stream) {
  if (row_gradients_ == nullptr) {
    return nn::BiasBackward(OwnRows(), dy, dbias, workspace_, stream);
  }
  return ForEachBlock([&](int piece, int block, const parallel::RowRange& rows) {
    return nn::BiasBackward(
        {shape_.dtype, rows.count, width()}, Behind(dy, shape_.bytes_of(rows.first * width())),
        {row_gradients_->Block(piece, block, place * width())}, workspace_, stream);
  });
}

absl::Status Layers::SumRowGradients(absl::Span<const nn::Gradient> gradients,
                                     device::Stream& stream) {
  if (row_gradients_ == nullptr) return absl::OkStatus();
  absl::InlinedVector<parallel::RowGradients::Target, 6> targets;
  for (const nn::Gradient& gradient : gradients) {
    targets.push_back({static_cast<int64_t>(targets.size()) * width(), width(), gradient});
  }
  return row_gradients_->Sum(targets, stream);
}

void* Layers::PartOf(const BlockMemory& memory, BlockArray array, int shard) const {
  void* const all = memory.arrays[array];
  switch (array) {
    case kLogSumExp: {
      const int64_t of_sum =
          shape_.dtype == precision::DType::kFloat64 ? sizeof(double) : sizeof(float);
      return Behind(all, shard * shape_.AttentionOfPart().statistics() * of_sum);
    }
    case kQkv:
    case kHeadQkv:
      return PartOf(all, 3 * width(), shard);
    case kExpanded:
    case kGelu:
      return PartOf(all, 4 * width(), shard);
    default:
      return PartOf(all, width(), shard);
  }
}

parallel::Ulysses::Saved Layers::HeadsOf(const BlockMemory& memory, int shard) const {
  return {.qkv = PartOf(memory, kHeadQkv, shard),
          .out = PartOf(memory, kHeadAttention, shard),
          .log_sum_exp = PartOf(memory, kLogSumExp, shard)};
}

absl::Status Layers::GatherQkv(const BlockMemory& memory, device::Stream& stream) {
  if (ulysses_ == nullptr) return absl::OkStatus();
  for (int s = 0; s < local_shards(); ++s) {
    BRIGADE_RETURN_IF_ERROR(
        ulysses_->GatherQkv(PartOf(memory, kQkv, s), HeadsOf(memory, s), stream));
  }
  return absl::OkStatus();
}

absl::Status Layers::Attention(const BlockMemory& memory, device::Stream& stream) {
  for (int s = 0; s < local_shards(); ++s) {
    const void* const qkv = PartOf(memory, kQkv, s);
    void* const out = PartOf(memory, kAttention, s);
    void* const log_sum_exp = PartOf(memory, kLogSumExp, s);
    BRIGADE_RETURN_IF_ERROR(ulysses_ != nullptr ? ulysses_->Attend(HeadsOf(memory, s), out, stream)
                            : ring_ != nullptr  ? ring_->Forward(qkv, out, log_sum_exp, stream)
                                                : nn::Attention(shape_.AttentionOfPart(), qkv, out,
                                                                log_sum_exp, stream));
  }
  return absl::OkStatus();
}

absl::Status Layers::AttentionBackward(const BlockMemory& memory, device::Stream& stream) {
  for (int s = 0; s < local_shards(); ++s) {
    const void* const dout = PartOf(memory.dwidth, width(), s);
    void* const dqkv = PartOf(memory.dqkv, 3 * width(), s);
    const void* const qkv = PartOf(memory, kQkv, s);
    const void* const out = PartOf(memory, kAttention, s);
    const void* const log_sum_exp = PartOf(memory, kLogSumExp, s);
    BRIGADE_RETURN_IF_ERROR(
        ulysses_ != nullptr ? ulysses_->Backward(dout, HeadsOf(memory, s), dqkv, stream)
        : ring_ != nullptr
            ? ring_->Backward(qkv, out, log_sum_exp, dout, dqkv, stream)
            : nn::AttentionBackward(shape_.AttentionOfPart(), qkv, out, log_sum_exp, dout,
                                    attention_workspace_.data(), dqkv, stream));
  }
  return absl::OkStatus();
}

absl::Status Layers::AddBiasGelu(const BlockMemory& memory, const void* bias,
                                 device::Stream& stream) {
  const nn::MatrixShape shard = {shape_.dtype, shape_.rows(), shape_.OfShard(4 * width())};
  for (int s = 0; s < local_shards(); ++s) {
    BRIGADE_RETURN_IF_ERROR(nn::AddBiasGelu(shard, PartOf(memory, kExpanded, s),
                                            Behind(bias, s * shape_.bytes_of(shard.columns)),
                                            PartOf(memory, kGelu, s), stream));
  }
  return absl::OkStatus();
}

absl::Status Layers::Gelu(const BlockMemory& memory, device::Stream& stream) {
  return nn::Gelu(AllShards(4 * width()), memory.arrays[kExpanded], memory.arrays[kGelu], stream);
}

absl::Status Layers::GeluBackward(const BlockMemory& memory, device::Stream& stream) {
  return nn::GeluBackward(AllShards(4 * width()), memory.arrays[kExpanded], memory.dmlp, stream);
}

absl::Status Layers::CopyPositions(void* table, bool to_table, device::Stream& stream) {
  for (const parallel::PositionRun& run : shape_.runs()) {
    void* const in_table = Behind(table, shape_.bytes_of(run.global * width()));
    void* const own = Behind(own_positions_.data(), shape_.bytes_of(run.local * width()));
    BRIGADE_RETURN_IF_ERROR(stream.Copy(to_table ? in_table : own, to_table ? own : in_table,
                                        shape_.bytes_of(run.count * width())));
  }
  return absl::OkStatus();
}

absl::Status Layers::Embedding(const nn::Texts& texts, const void* tokens, const void* positions,
                               void* x, device::Stream& stream) {
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds window,
                           parallel::VocabularyWindow(texts, shape_.shards()));
  const void* own = Behind(positions, shape_.bytes_of(shape_.runs()[0].global * width()));
  if (ring_ != nullptr) {
    BRIGADE_RETURN_IF_ERROR(
        CopyPositions(const_cast<void*>(positions), /*to_table=*/false, stream));
    own = own_positions_.data();
  }
  return parallel::VocabularyEmbedding(window, width(), tokens, own, x, *sums_, stream);
}

absl::Status Layers::EmbeddingBackward(const nn::Texts& texts, const void* dx, nn::Gradient dtokens,
                                       nn::Gradient dpositions, device::Stream& stream) {
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds window,
                           parallel::VocabularyWindow(texts, shape_.shards()));
  void* const table = dpositions.data;
  if (shape_.context_ranks > 1 && !dpositions.accumulate) {
    // The others' positions are not in this rank's texts.
    BRIGADE_RETURN_IF_ERROR(
        stream.FillBytes(table, 0, shape_.bytes_of(shape_.model.context * width())));
  }
  dpositions.data = Behind(table, shape_.bytes_of(shape_.runs()[0].global * width()));
  if (ring_ != nullptr) {
    if (dpositions.accumulate) {
      BRIGADE_RETURN_IF_ERROR(CopyPositions(table, /*to_table=*/false, stream));
    }
    dpositions.data = own_positions_.data();
  }
  BRIGADE_RETURN_IF_ERROR(sums_->AwaitRows(stream));
  BRIGADE_RETURN_IF_ERROR(nn::EmbeddingBackward(window, shape_.dtype, width(), dx, dtokens,
                                                dpositions, workspace_, stream));
  return ring_ != nullptr ? CopyPositions(table, /*to_table=*/true, stream) : absl::OkStatus();
}

absl::Status Layers::CrossEntropy(const nn::Texts& texts, const void* logits, void* softmax,
                                  void* losses, device::Stream& stream) {
  if (cross_entropy_ == nullptr) {
    return nn::CrossEntropy(texts, shape_.dtype, logits, losses, stream);
  }
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds window,
                           parallel::VocabularyWindow(texts, shape_.shards()));
  return cross_entropy_->Forward(window, logits, softmax, losses, stream);
}

absl::Status Layers::CrossEntropyBackward(const nn::Texts& texts, void* logits, const void* softmax,
                                          const float* seed, device::Stream& stream) {
  if (cross_entropy_ == nullptr) {
    return nn::CrossEntropyBackward(texts, shape_.dtype, logits, seed, stream);
  }
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds window,
                           parallel::VocabularyWindow(texts, shape_.shards()));
  return cross_entropy_->Backward(window, logits, softmax, seed, stream);
}

}  // namespace brigade::gpt
