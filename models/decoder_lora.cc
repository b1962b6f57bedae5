// What adapters add to a decoder's layers, and a base that lies as codes.

#include <algorithm>
#include <cstddef>

#include "brigade/device/status_macros.h"
#include "brigade/kernels/block_quant/block_quant.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/embedding.h"

namespace brigade::models {

absl::StatusOr<const void*> Decoder::WeightOf(const Call& call, const LinearLayer& layer, int s) {
  const void* const weight = call.parameters.weights(layer.weight);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  const ParameterRole& role = roles_[static_cast<size_t>(layer.weight)];
  if (role.kind != ParameterRole::Kind::kInt8Base) return OfShard(weight, s, layer.size());
  const void* const codes = static_cast<const float*>(weight) + s * WordsOf(layer.size());
  BRIGADE_RETURN_IF_ERROR(kernels::BlockDequantize({{codes, memory_.dequantized, layer.size()}},
                                                   {.dtype = dtype()}, call.stream));
  return memory_.dequantized;
}

const LoraModule* Decoder::AdapterOf(const LinearLayer& layer) const {
  if (!applies_adapters_) return nullptr;
  const int module = layer.is_head ? head_module_ : module_of_[static_cast<size_t>(layer.weight)];
  return module < 0 ? nullptr : &modules_[static_cast<size_t>(module)];
}

nn::LoraInput Decoder::LoraOf(const Call& call, const LoraModule& module, const void* x,
                              int64_t leading) const {
  nn::LoraInput input = {.dtype = dtype(),
                         .x = x,
                         .a = call.parameters.weights(module.a),
                         .b = call.parameters.weights(module.b),
                         .rows = call.rows(),
                         .inputs = module.inputs,
                         .outputs = module.outputs,
                         .rank = options_.lora->rank,
                         .scale = options_.lora->scale(),
                         .y_leading = leading};
  const Batch& batch = call.batch;
  if (batch.step != nullptr && options_.trains && !module.is_embedding()) {
    input.dropout = {.probability = options_.lora->dropout,
                     .seed = options_.lora->dropout_seed,
                     .layer = static_cast<uint32_t>(&module - modules_.data()),
                     .step = batch.step,
                     .first_element = FirstElement(batch, module.inputs)};
    input.runs = RunsOf(batch);
  }
  return input;
}

nn::LoraScratch Decoder::scratch() const {
  return {memory_.lora_inputs, memory_.lora_hidden, memory_.lora_dhidden};
}

absl::Status Decoder::AddAdapter(const Call& call, const LinearLayer& layer, const void* x,
                                 void* y) {
  const LoraModule* const module = AdapterOf(layer);
  if (module == nullptr) return absl::OkStatus();
  if (is_sharded() && layer.cut != Cut::kNone) return AddCutAdapter(call, layer, *module, x, y);
  const nn::LoraInput input = LoraOf(call, *module, x, layer.leading);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  return nn::Lora(input, scratch(), y, blas(), call.stream);
}

absl::Status Decoder::AdapterBackward(const Call& call, const LinearLayer& layer, const void* x,
                                      const void* dy, nn::Gradient dx) {
  const LoraModule* const module = AdapterOf(layer);
  if (module == nullptr) return absl::OkStatus();
  if (is_sharded() && layer.cut != Cut::kNone) {
    return CutAdapterBackward(call, layer, *module, x, dy, dx.data);
  }
  const nn::LoraInput input = LoraOf(call, *module, x, layer.leading);
  const nn::Gradient da = GradientOfFirstHalf(call, module->a);
  const nn::Gradient db = GradientOfFirstHalf(call, module->b);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  return nn::LoraBackward(input, scratch(), dy, dx.data, da, db, blas(), call.stream);
}

absl::Status Decoder::AddEmbeddingAdapters(const Call& call, void* x) {
  if (!applies_adapters_) return absl::OkStatus();
  for (const LoraModule& module : modules_) {
    if (!module.is_embedding()) continue;
    nn::LoraInput input = LoraOf(call, module, nullptr);
    BRIGADE_RETURN_IF_ERROR(call.parameters.status());
    if (module.kind == LoraModule::Kind::kTokens) {
      BRIGADE_RETURN_IF_ERROR(LookUp(call, input.rank, input.a, nullptr, memory_.lora_hidden));
      BRIGADE_RETURN_IF_ERROR(nn::LoraUp(input, memory_.lora_hidden, x, blas(), call.stream));
      continue;
    }
    if (options_.restarts_positions()) {
      BRIGADE_RETURN_IF_ERROR(nn::Embedding(PositionIdsOf(call), dtype(), input.rank, input.a,
                                            nullptr, memory_.lora_hidden, call.stream));
      BRIGADE_RETURN_IF_ERROR(nn::LoraUp(input, memory_.lora_hidden, x, blas(), call.stream));
      continue;
    }
    // Each sample has the same rows of the table.
    BRIGADE_ASSIGN_OR_RETURN(const void* const rows, PositionRows(call, input.a, input.rank));
    input.rows = call.ids.context();
    for (int64_t sample = 0; sample < call.ids.batch(); ++sample) {
      void* const of_sample =
          static_cast<char*>(x) + Bytes(sample * call.ids.context() * config_.width);
      BRIGADE_RETURN_IF_ERROR(nn::LoraUp(input, rows, of_sample, blas(), call.stream));
    }
  }
  return absl::OkStatus();
}

absl::Status Decoder::EmbeddingAdaptersBackward(const Call& call) {
  for (const LoraModule& module : modules_) {
    if (!module.is_embedding()) continue;
    const bool of_positions = module.kind == LoraModule::Kind::kPositions;
    if (of_positions && !options_.restarts_positions()) {
      BRIGADE_RETURN_IF_ERROR(PositionAdapterBackward(call, module));
      continue;
    }
    BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds window, WindowOf(call.ids));
    const nn::TokenIds ids = of_positions ? PositionIdsOf(call) : window;
    const nn::LoraInput input = LoraOf(call, module, nullptr);
    const nn::Gradient da = GradientOfFirstHalf(call, module.a);
    const nn::Gradient db = GradientOfFirstHalf(call, module.b);
    BRIGADE_RETURN_IF_ERROR(call.parameters.status());
    BRIGADE_RETURN_IF_ERROR(of_positions
                                ? nn::Embedding(ids, dtype(), input.rank, input.a, nullptr,
                                                memory_.lora_hidden, call.stream)
                                : LookUp(call, input.rank, input.a, nullptr, memory_.lora_hidden));
    BRIGADE_RETURN_IF_ERROR(nn::LoraUpBackward(input, memory_.lora_hidden, call.dx,
                                               memory_.lora_dhidden, db, blas(), call.stream));
    BRIGADE_RETURN_IF_ERROR(nn::EmbeddingBackward(ids, dtype(), input.rank, memory_.lora_dhidden,
                                                  da, {}, workspace(), call.stream));
  }
  return absl::OkStatus();
}

absl::Status Decoder::PositionAdapterBackward(const Call& call, const LoraModule& module) {
  nn::LoraInput input = LoraOf(call, module, nullptr);
  input.rows = call.ids.context();
  const nn::Gradient da = GradientOfFirstHalf(call, module.a);
  const nn::Gradient db = GradientOfFirstHalf(call, module.b);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  // The gradient of the table's rows, summed over the samples, as if they were trained.
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds window, WindowOf(call.ids));
  BRIGADE_RETURN_IF_ERROR(nn::EmbeddingBackward(window, dtype(), config_.width, call.dx, {},
                                                {memory_.lora_inputs}, workspace(), call.stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const rows, PositionRows(call, input.a, input.rank));
  BRIGADE_RETURN_IF_ERROR(nn::LoraUpBackward(input, rows, memory_.lora_inputs, memory_.lora_dhidden,
                                             db, blas(), call.stream));
  if (da.data == nullptr) return absl::OkStatus();
  // The rows are positions: one sample's.
  BRIGADE_ASSIGN_OR_RETURN(
      const nn::TokenIds positions,
      WindowOf(nn::TokenIds::WithLabels(static_cast<const int32_t*>(call.batch.inputs), nullptr, 1,
                                        call.ids.context(), config_.vocabulary)));
  return MakePositionRows(call, da, input.rank, [&](nn::Gradient of_rows) {
    return nn::EmbeddingBackward(positions, dtype(), input.rank, memory_.lora_dhidden, {}, of_rows,
                                 workspace(), call.stream);
  });
}

}  // namespace brigade::models
