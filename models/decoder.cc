#include "brigade/models/decoder.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/cached_attention.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/linear.h"
#include "brigade/nn/rms_norm.h"

namespace brigade::models {

absl::Status Decoder::Check(int unit, const Batch& batch, bool trains) const {
  BRIGADE_RETURN_IF_ERROR(CheckChunk(unit, batch.chunk, trains));
  if (batch.samples < 1 || batch.samples > options_.samples || batch.positions < 1 ||
      batch.positions > options_.positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch.samples, " samples of ", batch.positions,
        " positions; the model has memory for ", options_.samples, " of ", options_.positions));
  }
  if (options_.context_ranks.share() && batch.positions != options_.positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.positions, " positions, where each of ",
                     options_.context_ranks.size(), " context ranks has ", options_.positions));
  }
  if (batch.inputs == nullptr) return absl::InvalidArgumentError("a batch without inputs");
  if (!trains) return absl::OkStatus();
  if (!options_.trains) {
    return absl::InvalidArgumentError("a backward pass of a model without memory for it");
  }
  if (!applies_adapters_) {
    return absl::FailedPreconditionError("a backward pass of adapters that are merged");
  }
  if (batch.targets != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("a backward pass of a batch without targets");
}

Decoder::LinearLayer Decoder::HeadLayer() const {
  const int tokens = 0;
  // Behind its norm.
  const int own =
      FirstParameter(head_unit()) + (config_.architecture == Architecture::kGpt2 ? 2 : 1);
  return {.weight = config_.tied ? tokens : own,
          .cut = cuts_vocabulary() ? Cut::kColumns : Cut::kNone,
          .inputs = config_.width,
          .outputs = shard_.vocabulary,
          .is_head = true};
}

nn::TokenIds Decoder::IdsOf(const Batch& batch) const {
  return nn::TokenIds::WithLabels(static_cast<const int32_t*>(batch.inputs),
                                  static_cast<const int32_t*>(batch.targets), batch.samples,
                                  batch.positions, config_.vocabulary,
                                  (options_.segments ? 3 : 1) * batch.positions);
}

nn::Segments Decoder::SegmentsOf(const Batch& batch) const {
  if (!options_.segments) return {};
  const auto* const positions = static_cast<const int32_t*>(batch.inputs) + batch.positions;
  return {positions, positions + batch.positions, 3 * batch.positions};
}

std::vector<parallel::PassCollective> Decoder::CollectivesOf(const Batch& batch) const {
  std::vector<parallel::PassCollective> all = TensorCollectives(batch);
  for (const parallel::PassCollective& each : ContextCollectives(batch)) all.push_back(each);
  return all;
}

nn::AttentionShape Decoder::AttentionOf(const Call& call) const {
  return {dtype(),      call.ids.batch(),         call.ids.context(),
          shard_.heads, shard_.attention_width(), call.segments};
}

nn::Segments Decoder::PositionsOf(const Call& call) const {
  return options_.restart_positions ? call.segments : nn::Segments();
}

nn::TokenIds Decoder::PositionIdsOf(const Call& call) const {
  return nn::TokenIds::WithLabels(call.segments.positions, nullptr, call.ids.batch(),
                                  call.ids.context(), config_.positions, call.segments.stride);
}

absl::Status Decoder::CachedAttention(const Call& call, const BlockArrays& arrays) {
  const auto layer = static_cast<size_t>(call.layer);
  return nn::CachedAttention({.dtype = dtype(),
                              .samples = call.ids.batch(),
                              .capacity = options_.cached_positions,
                              .first = *call.first,
                              .count = call.ids.context(),
                              .heads = config_.heads,
                              .key_value_heads = config_.key_value_heads,
                              .head_width = config_.head_width},
                             arrays.projected, memory_.cached_keys[layer],
                             memory_.cached_values[layer], arrays.heads, call.stream);
}

absl::Status Decoder::Continue(const Batch& batch, int64_t first, zero::ParameterSource& source,
                               device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(0, batch, false));
  if (first < 0 || first > kept_ || first > options_.cached_positions - batch.positions) {
    return absl::InvalidArgumentError(absl::StrCat(batch.positions, " positions behind ", first,
                                                   "; the model keeps ", kept_, " and can keep ",
                                                   options_.cached_positions));
  }
  if (first > 0 && batch.samples != kept_samples_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "positions of ", batch.samples, " samples; the model keeps those of ", kept_samples_));
  }
  first_ = first;
  const absl::Status status = Forward(*this, batch, nullptr, source, stream);
  first_.reset();
  // What an error has left is not to be used.
  kept_ = status.ok() ? first + batch.positions : 0;
  kept_samples_ = batch.samples;
  return status;
}

absl::Status Decoder::ForwardUnit(int unit, const Batch& batch, void* losses,
                                  UnitParameters& parameters, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(unit, batch, false));
  const nn::TokenIds ids = IdsOf(batch);
  const nn::Segments segments = SegmentsOf(batch);
  Call call = CallOf(unit, batch, ids, segments, parameters, stream);
  call.first = first_;
  const int first = FirstParameter(unit);
  if (unit == 0) {
    const bool learned = config_.architecture == Architecture::kGpt2;
    const void* const tokens = parameters.weights(first);
    const void* const table = parameters.weights(learned ? first + 1 : -1);
    BRIGADE_RETURN_IF_ERROR(parameters.status());
    BRIGADE_ASSIGN_OR_RETURN(const void* const positions, PositionRows(call, table, config_.width));
    void* const x = OutputOf(call);
    BRIGADE_RETURN_IF_ERROR(LookUp(call, config_.width, tokens, positions, x));
    return AddEmbeddingAdapters(call, x);
  }
  const void* const x = InputOf(call);
  if (unit < head_unit()) return ForwardBlock(call, first, x, ArraysOf(call), OutputOf(call));
  const int bias = config_.architecture == Architecture::kGpt2 ? first + 1 : -1;
  const DecoderSlot& slot = *call.slot;
  BRIGADE_RETURN_IF_ERROR(Norm(call, first, bias, x, slot.final_norm));
  BRIGADE_RETURN_IF_ERROR(Linear(call, HeadLayer(), slot.final_norm.y, slot.logits));
  return losses == nullptr ? absl::OkStatus() : Losses(call, losses);
}

absl::Status Decoder::RecomputeUnit(int unit, const Batch& batch, UnitParameters& parameters,
                                    device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(unit, batch, true));
  if (!options_.recompute || unit == 0 || unit == head_unit()) return absl::OkStatus();
  const nn::TokenIds ids = IdsOf(batch);
  const nn::Segments segments = SegmentsOf(batch);
  const Call call = CallOf(unit, batch, ids, segments, parameters, stream);
  return ForwardBlock(call, FirstParameter(unit), InputOf(call), ArraysOf(call), nullptr);
}

absl::Status Decoder::BackwardEmbedding(const Call& call) {
  if (options_.lora.has_value()) {
    return call.computes_inputs() ? EmbeddingAdaptersBackward(call) : DeliverGradients(call);
  }
  if (!call.computes_weights()) return Keep(call, call.deferred->dembedding);
  const void* const dx = call.computes_inputs() ? call.dx : call.deferred->dembedding;
  const int first = FirstParameter(0);
  const bool learned = config_.architecture == Architecture::kGpt2;
  const nn::Gradient tokens = call.parameters.gradient(first);
  const nn::Gradient positions = call.parameters.gradient(learned ? first + 1 : -1);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  if (tokens.data == nullptr && positions.data == nullptr) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds ids, WindowOf(call.ids));
  if (learned && options_.restarts_positions()) {
    BRIGADE_RETURN_IF_ERROR(nn::EmbeddingBackward(ids, dtype(), config_.width, dx, tokens, {},
                                                  workspace(), call.stream));
    return nn::EmbeddingBackward(PositionIdsOf(call), dtype(), config_.width, dx, positions, {},
                                 workspace(), call.stream);
  }
  return MakePositionRows(call, positions, config_.width, [&](nn::Gradient rows) {
    return nn::EmbeddingBackward(ids, dtype(), config_.width, dx, tokens, rows, workspace(),
                                 call.stream);
  });
}

absl::Status Decoder::BackwardUnit(int unit, const Batch& batch, const float* seed,
                                   UnitParameters& parameters, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(unit, batch, true));
  const nn::TokenIds ids = IdsOf(batch);
  const nn::Segments segments = SegmentsOf(batch);
  const Call call = CallOf(unit, batch, ids, segments, parameters, stream);
  const ChunkPass& chunk = batch.chunk;
  if (call.computes_inputs() && chunk.is_last(unit) && chunk.output_gradient != nullptr &&
      chunk.output_gradient != call.dx) {
    BRIGADE_RETURN_IF_ERROR(
        stream.Copy(call.dx, chunk.output_gradient, Bytes(call.rows() * config_.width)));
  }
  if (unit == 0) return BackwardEmbedding(call);
  const int first = FirstParameter(unit);
  const void* const x = InputOf(call);
  if (unit < head_unit()) {
    BRIGADE_RETURN_IF_ERROR(BackwardBlock(call, first, x, ArraysOf(call)));
  } else {
    const DecoderSlot& slot = *call.slot;
    const bool learned = config_.architecture == Architecture::kGpt2;
    if (call.computes_inputs()) BRIGADE_RETURN_IF_ERROR(LossesBackward(call, seed));
    const LinearLayer layer = HeadLayer();
    BRIGADE_RETURN_IF_ERROR(
        ColumnsBackward(call, {{layer, slot.logits}}, slot.final_norm.y, memory_.y));
    BRIGADE_RETURN_IF_ERROR(NormBackward(call, first, learned ? first + 1 : -1, x, slot.final_norm,
                                         /*accumulate=*/false));
  }
  return call.computes_inputs() ? absl::OkStatus() : DeliverGradients(call);
}

absl::Status Decoder::Linear(const Call& call, const LinearLayer& layer, const void* x, void* y,
                             bool accumulate) {
  const void* const bias = call.parameters.weights(layer.bias);
  if (is_sharded() && layer.cut == Cut::kRows) {
    BRIGADE_RETURN_IF_ERROR(SumRows(call, layer, x, y));
    return AddAdapter(call, layer, x, y);
  }
  for (int s = 0; s < ShardsOf(layer); ++s) {
    BRIGADE_ASSIGN_OR_RETURN(const void* const weight, WeightOf(call, layer, s));
    BRIGADE_RETURN_IF_ERROR(nn::Linear({.dtype = dtype(),
                                        .x = x,
                                        .weight = weight,
                                        .rows = call.rows(),
                                        .inputs = layer.inputs,
                                        .outputs = layer.outputs,
                                        .input_major = layer.input_major,
                                        .y_leading = layer.leading,
                                        .accumulate = accumulate},
                                       OfShard(bias, s, layer.outputs),
                                       OfShard(y, s, call.rows() * layer.columns()), blas(),
                                       call.stream));
  }
  return AddAdapter(call, layer, x, y);
}

absl::Status Decoder::LinearBackward(const Call& call, const LinearLayer& layer, const void* x,
                                     const void* dy, nn::Gradient dx) {
  if (!call.computes_inputs()) dx = {};
  nn::Gradient dweight, dbias;
  if (call.computes_weights()) {
    dweight = call.parameters.gradient(layer.weight);
    dbias = call.parameters.gradient(layer.bias);
  }
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  // Cut by rows, if at all: of one dy, whose bias is whole.
  for (int s = 0; s < ShardsOf(layer); ++s) {
    const int64_t in_x = call.rows() * layer.inputs;
    const void* weight = nullptr;
    if (call.computes_inputs()) {
      BRIGADE_ASSIGN_OR_RETURN(weight, WeightOf(call, layer, s));
    }
    BRIGADE_RETURN_IF_ERROR(
        nn::LinearBackward({.dtype = dtype(),
                            .x = OfShard(x, s, in_x),
                            .weight = weight,
                            .rows = call.rows(),
                            .inputs = layer.inputs,
                            .outputs = layer.outputs,
                            .input_major = layer.input_major,
                            .y_leading = layer.leading},
                           dy, {OfShard(dx.data, s, in_x), dx.accumulate},
                           {OfShard(dweight.data, s, layer.size()), dweight.accumulate},
                           s == 0 ? dbias : nn::Gradient(), blas(), workspace(), call.stream));
  }
  return call.computes_inputs() ? AdapterBackward(call, layer, x, dy, dx) : absl::OkStatus();
}

absl::Status Decoder::Norm(const Call& call, int weight, int bias, const void* x,
                           const NormArrays& norm) {
  const void* const weights = call.parameters.weights(weight);
  const void* const biases = call.parameters.weights(bias);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  if (bias < 0) {
    return nn::RmsNorm(
        {dtype(), x, weights, norm.inverse, call.rows(), config_.width, config_.norm_epsilon},
        norm.y, call.stream);
  }
  return nn::LayerNorm({dtype(), x, weights, norm.mean, norm.inverse, call.rows(), config_.width,
                        config_.norm_epsilon},
                       biases, norm.y, call.stream);
}

absl::Status Decoder::NormBackward(const Call& call, int weight, int bias, const void* x,
                                   const NormArrays& norm, bool accumulate) {
  if (!call.computes_inputs()) return absl::OkStatus();
  const void* const weights = call.parameters.weights(weight);
  const nn::Gradient dweight = GradientOfFirstHalf(call, weight);
  const nn::Gradient dbias = GradientOfFirstHalf(call, bias);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  const nn::Gradient dx = {call.dx, accumulate};
  if (bias < 0) {
    return nn::RmsNormBackward(
        {dtype(), x, weights, norm.inverse, call.rows(), config_.width, config_.norm_epsilon},
        memory_.y, dx, dweight, workspace(), call.stream);
  }
  return nn::LayerNormBackward({dtype(), x, weights, norm.mean, norm.inverse, call.rows(),
                                config_.width, config_.norm_epsilon},
                               memory_.y, dx, dweight, dbias, workspace(), call.stream);
}

}  // namespace brigade::models
