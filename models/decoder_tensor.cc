// Products, tables and losses of a decoder that is cut over tensor shards, and what its ranks
// exchange.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/linear.h"
#include "brigade/parallel/tensor/embedding.h"
#include "brigade/parallel/tensor/row_pieces.h"

namespace brigade::models {
namespace {

using parallel::RowRange;
using precision::DType;

// Of the largest sum.
int64_t MostColumns(const DecoderConfig& config, const DecoderOptions& options) {
  return std::max(config.width, options.lora.has_value() ? options.lora->rank : 0);
}

parallel::ShardSumOptions SumOptions(const DecoderConfig& config, const DecoderOptions& options) {
  const int64_t rows = options.samples * options.positions;
  return {.shards = options.tensor.shards,
          .dtype = options.dtype,
          .wire = options.tensor.wire,
          .elements = rows * MostColumns(config, options),
          .pieces = options.tensor.pieces,
          .rows = rows,
          .overlap = options.tensor.overlap};
}

parallel::VocabularyCrossEntropyOptions EntropyOptions(const DecoderOptions& options) {
  return {.shards = options.tensor.shards,
          .dtype = options.dtype,
          .rows = options.samples * options.positions};
}

// The loss of a vocabulary that is cut, where the head is.
bool HasEntropy(const DecoderConfig& config, const DecoderOptions& options) {
  return CutsVocabulary(config, options.tensor.shards) &&
         HasUnit(config, options, static_cast<int>(config.layers) + 1);
}

}  // namespace

int64_t SumBytes(const DecoderConfig& config, const DecoderOptions& options) {
  if (!options.tensor.is_sharded()) return 0;
  return parallel::ShardSums::Bytes(SumOptions(config, options)) +
         (HasEntropy(config, options)
              ? parallel::VocabularyCrossEntropy::Bytes(EntropyOptions(options))
              : 0);
}

absl::Status Decoder::CreateSums(device::Context& context) {
  if (!is_sharded()) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(sums_, parallel::ShardSums::Create(SumOptions(config_, options_),
                                                              options_.tensor.ranks, context));
  if (!HasEntropy(config_, options_)) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(
      cross_entropy_, parallel::VocabularyCrossEntropy::Create(EntropyOptions(options_),
                                                               options_.tensor.ranks, context));
  return absl::OkStatus();
}

std::vector<parallel::PassCollective> Decoder::TensorCollectives(const Batch& batch) const {
  std::vector<parallel::PassCollective> all;
  if (options_.tensor.shards.ranks == 1) return all;
  const auto has = [this](int unit) { return HasUnit(config_, options_, unit); };
  const auto add = [&](const collectives::CollectiveSignature& signature, int64_t times) {
    all.push_back({parallel::GridGroup::kTensor, signature, times});
  };
  // Of [rows, width]; and of adapters of [rows, rank].
  const int64_t backward = options_.trains ? 1 : 0, again = options_.recompute ? backward : 0;
  int64_t sums = 0, sums_of_rank = 0;
  for (int unit = 1; unit < head_unit(); ++unit) {
    // Two in each pass; what is made again ends before the block's second product by rows.
    if (has(unit)) sums += options_.trains ? 4 + again : 2;
  }
  if (HasEntropy(config_, options_)) sums += backward;
  int64_t tokens = cuts_vocabulary() && has(0) ? 1 : 0, tokens_of_rank = 0;
  for (const LoraModule& module : modules_) {
    if (!has(module.unit)) continue;
    const auto is_cut = [&](int parameter) {
      return cut_.parameters[static_cast<size_t>(parameter)].axis.has_value();
    };
    if (module.kind == LoraModule::Kind::kTokens) {
      // Looked up in both passes.
      tokens_of_rank += (1 + backward) * tokens;
    } else if (is_cut(module.a)) {
      const bool is_last = absl::StrContains(module.name, ".mlp.");
      sums_of_rank += 1 + backward + (is_last ? 0 : again);
    } else if (is_cut(module.b)) {
      sums_of_rank += backward;
    }
  }
  const parallel::ShardSumOptions options = SumOptions(config_, options_);
  const parallel::RowPieces pieces = {batch.rows(), options.pieces, options.part, options.shards};
  const auto add_sums = [&](int64_t columns, int64_t times, int64_t of_one) {
    for (int p = 0; p < pieces.count(); ++p) {
      add(parallel::ShardSums::SignatureOf(options, pieces.Piece(p).count * columns), times);
    }
    add(parallel::ShardSums::SignatureOfOne(options, batch.rows() * columns), of_one);
  };
  add_sums(config_.width, sums, tokens);
  if (options_.lora.has_value()) add_sums(options_.lora->rank, sums_of_rank, tokens_of_rank);
  if (HasEntropy(config_, options_)) {
    add(parallel::VocabularyCrossEntropy::SignatureOf(EntropyOptions(options_), batch.rows()), 1);
  }
  return all;
}

absl::StatusOr<nn::TokenIds> Decoder::WindowOf(const nn::TokenIds& ids) const {
  if (!cuts_vocabulary()) return ids;
  return parallel::VocabularyWindow(ids, options_.tensor.shards);
}

absl::Status Decoder::LookUp(const Call& call, int64_t columns, const void* tokens,
                             const void* positions, void* x) {
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds ids, WindowOf(call.ids));
  const auto look_up = [&](int, const RowRange&, void* rows, DType type) {
    return nn::Embedding(ids, type, columns, tokens, positions, rows, call.stream,
                         PositionsOf(call));
  };
  if (!cuts_vocabulary()) return look_up(0, {}, x, dtype());
  return sums_->SumOfOne(call.rows(), columns, look_up, x, call.stream);
}

absl::Status Decoder::Losses(const Call& call, void* losses) {
  if (cross_entropy_ == nullptr) {
    return nn::CrossEntropy(call.ids, dtype(), call.slot->logits, losses, call.stream);
  }
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds ids, WindowOf(call.ids));
  return cross_entropy_->Forward(ids, call.slot->logits, call.slot->softmax, losses, call.stream);
}

absl::Status Decoder::LossesBackward(const Call& call, const float* seed) {
  if (cross_entropy_ == nullptr) {
    return nn::CrossEntropyBackward(call.ids, dtype(), call.slot->logits, seed, call.stream);
  }
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds ids, WindowOf(call.ids));
  return cross_entropy_->Backward(ids, call.slot->logits, call.slot->softmax, seed, call.stream);
}

void* Decoder::LogSumExpOf(const Call& call, const BlockArrays& arrays, int s) const {
  const int64_t of_statistic = dtype() == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return static_cast<char*>(arrays.log_sum_exp) + s * AttentionOf(call).statistics() * of_statistic;
}

absl::Status Decoder::SumRows(const Call& call, const LinearLayer& layer, const void* x, void* y) {
  const auto product = [&](int s, const RowRange& rows, void* partial, DType type) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const void* const weight, WeightOf(call, layer, s));
    const void* const mine = OfShard(x, s, call.rows() * layer.inputs);
    return blas().Gemm(
        {.dtype = dtype(),
         .m = rows.count,
         .n = layer.outputs,
         .k = layer.inputs,
         .a = {const_cast<void*>(OfShard(mine, 1, rows.first * layer.inputs)), layer.inputs},
         .b = {const_cast<void*>(weight), layer.input_major ? layer.outputs : layer.inputs,
               !layer.input_major},
         .c = {partial, layer.outputs},
         .c_dtype = type},
        call.stream);
  };
  return sums_->Sum(call.rows(), layer.outputs, product, y, call.stream);
}

absl::Status Decoder::ColumnsBackward(const Call& call, absl::Span<const Column> columns,
                                      const void* x, void* dx) {
  if (!is_sharded() || columns.front().layer.cut == Cut::kNone) {
    for (const Column& column : columns) {
      BRIGADE_RETURN_IF_ERROR(LinearBackward(call, column.layer, x, column.dy,
                                             {dx, /*accumulate=*/&column != columns.begin()}));
    }
    return absl::OkStatus();
  }
  struct Gradients {
    nn::Gradient dweight, dbias;
  };
  absl::InlinedVector<Gradients, 3> gradients;
  for (const Column& column : columns) {
    Gradients& of = gradients.emplace_back();
    if (!call.computes_weights()) continue;
    of.dweight = call.parameters.gradient(column.layer.weight);
    of.dbias = call.parameters.gradient(column.layer.bias);
  }
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  const int64_t width = config_.width;
  // One sum for all layers.
  const auto product = [&](int s, const RowRange& rows, void* partial, DType type) -> absl::Status {
    for (size_t i = 0; i < columns.size(); ++i) {
      const LinearLayer& layer = columns[i].layer;
      const int64_t before = (s * call.rows() + rows.first) * layer.columns();
      BRIGADE_ASSIGN_OR_RETURN(const void* const weight, WeightOf(call, layer, s));
      BRIGADE_RETURN_IF_ERROR(
          blas().Gemm({.dtype = dtype(),
                       .m = rows.count,
                       .n = width,
                       .k = layer.outputs,
                       .a = {const_cast<void*>(OfShard(columns[i].dy, 1, before)), layer.columns()},
                       .b = {const_cast<void*>(weight), layer.input_major ? layer.outputs : width,
                             layer.input_major},
                       .c = {partial, width},
                       .accumulate = i > 0,
                       .c_dtype = type},
                      call.stream));
    }
    return absl::OkStatus();
  };
  if (call.computes_inputs()) {
    BRIGADE_RETURN_IF_ERROR(sums_->StartSum(call.rows(), width, product, dx, call.stream));
  }
  // Beside the sum.
  for (size_t i = 0; i < columns.size() && call.computes_weights(); ++i) {
    const LinearLayer& layer = columns[i].layer;
    const auto& [dweight, dbias] = gradients[i];
    for (int s = 0; s < local_shards(); ++s) {
      BRIGADE_RETURN_IF_ERROR(
          nn::LinearBackward({.dtype = dtype(),
                              .x = x,
                              .weight = nullptr,
                              .rows = call.rows(),
                              .inputs = width,
                              .outputs = layer.outputs,
                              .input_major = layer.input_major,
                              .y_leading = layer.leading},
                             OfShard(columns[i].dy, s, call.rows() * layer.columns()), {},
                             {OfShard(dweight.data, s, layer.size()), dweight.accumulate},
                             {OfShard(dbias.data, s, layer.outputs), dbias.accumulate}, blas(),
                             workspace(), call.stream));
    }
  }
  if (!call.computes_inputs()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(sums_->FinishSum(call.stream));
  for (const Column& column : columns) {
    BRIGADE_RETURN_IF_ERROR(AdapterBackward(call, column.layer, x, column.dy, {dx, true}));
  }
  return absl::OkStatus();
}

}  // namespace brigade::models
