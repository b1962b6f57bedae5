// A block's forward and backward pass.

#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/transformer.h"

namespace brigade::gpt {
namespace {

// Of Layers::SumRowGradients, and which parameter is there.
constexpr int kNorm1Place = 0, kProjectionBiasPlace = 2, kNorm2Place = 3, kContractBiasPlace = 5;
constexpr Block kRowGradients[kBlockRowGradients] = {kNorm1Weight, kNorm1Bias, kProjectionBias,
                                                     kNorm2Weight, kNorm2Bias, kContractBias};

}  // namespace

absl::Status Transformer::AddBranch(const Call& call, uint32_t place, const void* bias,
                                    const void* residual, void* x) {
  if (call.dropout.probability == 0) {
    return nn::AddBias(Residual(), x, bias, residual, call.stream);
  }
  BRIGADE_RETURN_IF_ERROR(nn::AddBias(Residual(), x, bias, nullptr, call.stream));
  return Dropout(call, place, x, residual);
}

absl::StatusOr<const void*> Transformer::BranchGradient(const Call& call, uint32_t place,
                                                        void* memory, void* deferred) {
  if (!call.computes_inputs()) return deferred;
  const bool defers = call.kind == Kind::kBackwardInput;
  void* const to = defers ? deferred : memory;
  if (call.dropout.probability != 0) {
    BRIGADE_RETURN_IF_ERROR(DropoutBackward(call, place, call.dx, to));
    return to;
  }
  if (!defers) return call.dx;
  BRIGADE_RETURN_IF_ERROR(call.stream.Copy(to, call.dx, shape_.residual_bytes()));
  return to;
}

absl::Status Transformer::ForwardBlock(int64_t layer, const void* x, const BlockMemory& memory,
                                       const Call& call, StageUnit& unit) {
  device::Stream& stream = call.stream;
  void* const* const at = memory.arrays;
  const auto weights = [&](Block which) { return unit.weights(BlockParameter(layer, which)); };
  const void* const norm1 = weights(kNorm1Weight);
  const void* const norm1_bias = weights(kNorm1Bias);
  const void* const qkv = weights(kQkvWeight);
  const void* const qkv_bias = weights(kQkvBias);
  const void* const projection = weights(kProjectionWeight);
  const void* const projection_bias = weights(kProjectionBias);
  const void* const norm2 = weights(kNorm2Weight);
  const void* const norm2_bias = weights(kNorm2Bias);
  const void* const expand = weights(kExpandWeight);
  const void* const expand_bias = weights(kExpandBias);
  const void* const contract = weights(kContractWeight);
  const void* const contract_bias = weights(kContractBias);
  BRIGADE_RETURN_IF_ERROR(unit.status());

  BRIGADE_ASSIGN_OR_RETURN(const void* const all_norm1,
                           layers_->Norm(NormOf(x, norm1, at[kMean1], at[kInverse1]), norm1_bias,
                                         at[kNorm1], memory, stream));
  BRIGADE_RETURN_IF_ERROR(layers_->Column(all_norm1, qkv, qkv_bias, 3 * width(), at[kQkv], stream));
  BRIGADE_RETURN_IF_ERROR(layers_->GatherQkv(memory, stream));
  BRIGADE_RETURN_IF_ERROR(layers_->Attention(memory, stream));
  BRIGADE_RETURN_IF_ERROR(layers_->Row(at[kAttention], width(), projection, at[kMiddle], stream));
  BRIGADE_RETURN_IF_ERROR(AddBranch(call, AttentionPlace(layer), projection_bias, x, at[kMiddle]));

  BRIGADE_ASSIGN_OR_RETURN(const void* const all_norm2,
                           layers_->Norm(NormOf(at[kMiddle], norm2, at[kMean2], at[kInverse2]),
                                         norm2_bias, at[kNorm2], memory, stream));
  BRIGADE_RETURN_IF_ERROR(
      layers_->Column(all_norm2, expand, nullptr, 4 * width(), at[kExpanded], stream));
  BRIGADE_RETURN_IF_ERROR(layers_->AddBiasGelu(memory, expand_bias, stream));
  if (memory.output == nullptr) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(layers_->Row(at[kGelu], 4 * width(), contract, memory.output, stream));
  return AddBranch(call, MlpPlace(layer), contract_bias, at[kMiddle], memory.output);
}

// call.dx is the gradient of the block's output, and becomes that of its input. What was not saved
// is made again by the calls of the forward pass, each part before its gradients. Of the two halves
// the first makes all but the gradients of matrices and of the biases of column products, and the
// second nothing else.
absl::Status Transformer::BackwardBlock(int64_t layer, const BlockSaveOption& option, const void* x,
                                        const BlockMemory& memory, const Call& call,
                                        StageUnit& unit) {
  device::Stream& stream = call.stream;
  void* const* const at = memory.arrays;
  const auto weights = [&](Block which) { return unit.weights(BlockParameter(layer, which)); };
  const void* const norm1 = weights(kNorm1Weight);
  const void* const qkv = weights(kQkvWeight);
  const void* const projection = weights(kProjectionWeight);
  const void* const norm2 = weights(kNorm2Weight);
  const void* const expand = weights(kExpandWeight);
  const void* const contract = weights(kContractWeight);
  // Of what is made again.
  const void* const norm1_bias = weights(kNorm1Bias);
  const void* const qkv_bias = weights(kQkvBias);
  const void* const projection_bias = weights(kProjectionBias);
  const void* const norm2_bias = weights(kNorm2Bias);
  const void* const expand_bias = weights(kExpandBias);
  nn::Gradient gradients[kBlockParameters], rows[kBlockRowGradients];
  for (int i = 0; i < kBlockParameters && call.computes_weights(); ++i) {
    gradients[i] = unit.gradient(BlockParameter(layer, static_cast<Block>(i)));
  }
  for (int i = 0; i < kBlockRowGradients; ++i) rows[i] = gradients[kRowGradients[i]];
  DeferRowGradients(call, memory.row_gradients, absl::MakeSpan(rows));
  const nn::LayerNormInput first = NormOf(x, norm1, at[kMean1], at[kInverse1]),
                           second = NormOf(at[kMiddle], norm2, at[kMean2], at[kInverse2]);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  const auto mark = [&](train::PassPart part) {
    return train::MarkPart(part, static_cast<int>(layer) + 1, stream);
  };
  const bool inputs = call.computes_inputs();
  const BlockSaveOption again = inputs ? option : BlockSaveOption{"nothing again"};
  // A gradient of an input, which the second half leaves out; and all rows of a norm, which the
  // first half needs for no gradient.
  const auto input_only = [&](void* gradient) { return inputs ? gradient : nullptr; };
  const auto all_rows = [&](void* norm) -> absl::StatusOr<const void*> {
    if (!call.computes_weights()) return norm;
    return layers_->GatherNorm(norm, memory, stream);
  };

  if (again.drops_middle) {
    BRIGADE_RETURN_IF_ERROR(mark(train::PassPart::kRecomputeMiddle));
    BRIGADE_RETURN_IF_ERROR(layers_->Row(at[kAttention], width(), projection, at[kMiddle], stream));
    BRIGADE_RETURN_IF_ERROR(
        AddBranch(call, AttentionPlace(layer), projection_bias, x, at[kMiddle]));
  }
  if (again.drops_pointwise) {
    BRIGADE_RETURN_IF_ERROR(mark(train::PassPart::kRecomputePointwise));
    BRIGADE_RETURN_IF_ERROR(layers_->Norm(second, norm2_bias, at[kNorm2], memory, stream).status());
  }
  if (again.drops_expanded) {
    BRIGADE_RETURN_IF_ERROR(mark(train::PassPart::kRecomputeExpanded));
    BRIGADE_RETURN_IF_ERROR(
        layers_->Column(at[kNorm2], expand, nullptr, 4 * width(), at[kExpanded], stream));
    BRIGADE_RETURN_IF_ERROR(mark(train::PassPart::kRecomputePointwise));
    BRIGADE_RETURN_IF_ERROR(layers_->AddBiasGelu(memory, expand_bias, stream));
  } else if (again.drops_pointwise) {
    BRIGADE_RETURN_IF_ERROR(layers_->Gelu(memory, stream));
  }
  BRIGADE_RETURN_IF_ERROR(mark(call.part()));
  // Until their own gradients come, dwidth and dqkv are free for that of a branch.
  BRIGADE_ASSIGN_OR_RETURN(
      const void* const dmlp_branch,
      BranchGradient(call, MlpPlace(layer), memory.dwidth, memory.dmlp_branch));
  BRIGADE_ASSIGN_OR_RETURN(const void* const all_dmlp_branch,
                           layers_->GatherRows(dmlp_branch, memory.gathered, stream));
  if (inputs) {
    BRIGADE_RETURN_IF_ERROR(
        layers_->BiasBackward(dmlp_branch, rows[kContractBiasPlace], kContractBiasPlace, stream));
  }
  BRIGADE_RETURN_IF_ERROR(layers_->RowBackward(at[kGelu], 4 * width(), contract, all_dmlp_branch,
                                               input_only(memory.dmlp), gradients[kContractWeight],
                                               stream));
  if (inputs) BRIGADE_RETURN_IF_ERROR(layers_->GeluBackward(memory, stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const all_norm2, all_rows(at[kNorm2]));
  BRIGADE_RETURN_IF_ERROR(layers_->ColumnBackward(
      all_norm2, expand, 4 * width(), memory.dmlp, input_only(memory.dwidth),
      gradients[kExpandWeight], gradients[kExpandBias], stream));
  if (inputs) {
    BRIGADE_RETURN_IF_ERROR(layers_->NormBackward(second, memory.dwidth, {call.dx, true},
                                                  rows[kNorm2Place], rows[kNorm2Place + 1],
                                                  kNorm2Place, stream));
  }

  if (again.drops_pointwise) {
    BRIGADE_RETURN_IF_ERROR(mark(train::PassPart::kRecomputePointwise));
    BRIGADE_RETURN_IF_ERROR(layers_->Norm(first, norm1_bias, at[kNorm1], memory, stream).status());
  }
  if (again.drops_qkv) {
    BRIGADE_RETURN_IF_ERROR(mark(train::PassPart::kRecomputeQkv));
    BRIGADE_RETURN_IF_ERROR(
        layers_->Column(at[kNorm1], qkv, qkv_bias, 3 * width(), at[kQkv], stream));
    BRIGADE_RETURN_IF_ERROR(layers_->GatherQkv(memory, stream));
  }
  if (again.drops_attention) {
    BRIGADE_RETURN_IF_ERROR(mark(train::PassPart::kRecomputeAttention));
    BRIGADE_RETURN_IF_ERROR(layers_->Attention(memory, stream));
  }
  BRIGADE_RETURN_IF_ERROR(mark(call.part()));
  BRIGADE_ASSIGN_OR_RETURN(
      const void* const dattention_branch,
      BranchGradient(call, AttentionPlace(layer), memory.dqkv, memory.dattention_branch));
  BRIGADE_ASSIGN_OR_RETURN(const void* const all_dattention_branch,
                           layers_->GatherRows(dattention_branch, memory.gathered, stream));
  if (inputs) {
    BRIGADE_RETURN_IF_ERROR(layers_->BiasBackward(dattention_branch, rows[kProjectionBiasPlace],
                                                  kProjectionBiasPlace, stream));
  }
  BRIGADE_RETURN_IF_ERROR(layers_->RowBackward(at[kAttention], width(), projection,
                                               all_dattention_branch, input_only(memory.dwidth),
                                               gradients[kProjectionWeight], stream));
  if (inputs) BRIGADE_RETURN_IF_ERROR(layers_->AttentionBackward(memory, stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const all_norm1, all_rows(at[kNorm1]));
  BRIGADE_RETURN_IF_ERROR(layers_->ColumnBackward(all_norm1, qkv, 3 * width(), memory.dqkv,
                                                  input_only(memory.dwidth), gradients[kQkvWeight],
                                                  gradients[kQkvBias], stream));
  if (!inputs) return DeliverRowGradients(call, memory.row_gradients, rows);
  BRIGADE_RETURN_IF_ERROR(layers_->NormBackward(first, memory.dwidth, {call.dx, true},
                                                rows[kNorm1Place], rows[kNorm1Place + 1],
                                                kNorm1Place, stream));
  return layers_->SumRowGradients(rows, stream);
}

}  // namespace brigade::gpt
