// Adapters of a decoder's layers that are cut over tensor shards.

#include <cstddef>

#include "brigade/device/status_macros.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/lora.h"
#include "brigade/parallel/tensor/row_pieces.h"

namespace brigade::models {

using parallel::RowRange;
using precision::DType;

nn::LoraInput Decoder::ShardLora(const Call& call, const LinearLayer& layer,
                                 const LoraModule& module, const void* x, int s) const {
  nn::LoraInput input = LoraOf(call, module, x, layer.leading);
  input.inputs = layer.inputs;
  input.outputs = layer.outputs;
  if (layer.cut == Cut::kColumns) {
    input.b = OfShard(input.b, s, input.outputs * input.rank);
    return input;
  }
  input.x = OfShard(x, s, call.rows() * input.inputs);
  input.a = OfShard(input.a, s, input.inputs * input.rank);
  // A mask of each shard's own, whichever rank has it.
  const int shard = options_.tensor.shards.first() + s;
  input.dropout.layer += static_cast<uint32_t>(modules_.size()) * static_cast<uint32_t>(1 + shard);
  input.dropout.first_element = FirstElement(call.batch, input.inputs);
  return input;
}

absl::Status Decoder::SumDown(const Call& call, const LinearLayer& layer, const LoraModule& module,
                              const void* x) {
  const auto product = [&](int s, const RowRange& rows, void* partial, DType type) -> absl::Status {
    const nn::LoraInput input = ShardLora(call, layer, module, x, s);
    BRIGADE_ASSIGN_OR_RETURN(
        const void* const from,
        nn::LoraDropped(input, rows.first, rows.count, memory_.lora_inputs, call.stream));
    return blas().Gemm({.dtype = dtype(),
                        .m = rows.count,
                        .n = input.rank,
                        .k = input.inputs,
                        .a = {const_cast<void*>(from), input.inputs},
                        .b = {const_cast<void*>(input.a), input.inputs, true},
                        .c = {partial, input.rank},
                        .c_dtype = type},
                       call.stream);
  };
  return sums_->Sum(call.rows(), options_.lora->rank, product, memory_.lora_hidden, call.stream);
}

absl::Status Decoder::AddCutAdapter(const Call& call, const LinearLayer& layer,
                                    const LoraModule& module, const void* x, void* y) {
  const nn::LoraInput first = ShardLora(call, layer, module, x, 0);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  if (layer.cut == Cut::kRows) {
    BRIGADE_RETURN_IF_ERROR(SumDown(call, layer, module, x));
    return nn::LoraUp(first, memory_.lora_hidden, y, blas(), call.stream);
  }
  BRIGADE_RETURN_IF_ERROR(nn::LoraDown(first, scratch(), blas(), call.stream).status());
  for (int s = 0; s < local_shards(); ++s) {
    BRIGADE_RETURN_IF_ERROR(nn::LoraUp(ShardLora(call, layer, module, x, s), memory_.lora_hidden,
                                       OfShard(y, s, call.rows() * layer.columns()), blas(),
                                       call.stream));
  }
  return absl::OkStatus();
}

absl::Status Decoder::CutAdapterBackward(const Call& call, const LinearLayer& layer,
                                         const LoraModule& module, const void* x, const void* dy,
                                         void* dx) {
  const nn::LoraInput first = ShardLora(call, layer, module, x, 0);
  const nn::Gradient da = GradientOfFirstHalf(call, module.a);
  const nn::Gradient db = GradientOfFirstHalf(call, module.b);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  const int64_t rank = first.rank;
  if (layer.cut == Cut::kRows) {
    BRIGADE_RETURN_IF_ERROR(SumDown(call, layer, module, x));
    BRIGADE_RETURN_IF_ERROR(nn::LoraUpBackward(first, memory_.lora_hidden, dy, memory_.lora_dhidden,
                                               db, blas(), call.stream));
    for (int s = 0; s < local_shards(); ++s) {
      const nn::LoraInput input = ShardLora(call, layer, module, x, s);
      BRIGADE_ASSIGN_OR_RETURN(
          const void* const dropped,
          nn::LoraDropped(input, 0, call.rows(), memory_.lora_inputs, call.stream));
      BRIGADE_RETURN_IF_ERROR(nn::LoraDownBackward(
          input, scratch(), dropped, OfShard(dx, s, call.rows() * input.inputs),
          {OfShard(da.data, s, rank * input.inputs), da.accumulate}, blas(), call.stream));
    }
    return absl::OkStatus();
  }
  BRIGADE_ASSIGN_OR_RETURN(const void* const dropped,
                           nn::LoraDown(first, scratch(), blas(), call.stream));
  const int64_t columns = layer.columns();
  for (int s = 0; s < local_shards(); ++s) {
    BRIGADE_RETURN_IF_ERROR(nn::LoraUpGradient(
        ShardLora(call, layer, module, x, s), memory_.lora_hidden,
        OfShard(dy, s, call.rows() * columns),
        {OfShard(db.data, s, layer.outputs * rank), db.accumulate}, blas(), call.stream));
  }
  const auto product = [&](int s, const RowRange& rows, void* partial, DType type) {
    const int64_t before = (s * call.rows() + rows.first) * columns;
    return blas().Gemm({.dtype = dtype(),
                        .m = rows.count,
                        .n = rank,
                        .k = layer.outputs,
                        .a = {const_cast<void*>(OfShard(dy, 1, before)), columns},
                        .b = {const_cast<void*>(ShardLora(call, layer, module, x, s).b), rank},
                        .c = {partial, rank},
                        .scale = first.scale,
                        .c_dtype = type},
                       call.stream);
  };
  BRIGADE_RETURN_IF_ERROR(
      sums_->Sum(call.rows(), rank, product, memory_.lora_dhidden, call.stream));
  return nn::LoraDownBackward(first, scratch(), dropped, dx, da, blas(), call.stream);
}

}  // namespace brigade::models
