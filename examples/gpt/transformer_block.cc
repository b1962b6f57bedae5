// A block's forward and backward pass.

#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/pass_times.h"
#include "brigade/examples/gpt/transformer.h"

namespace brigade::gpt {
namespace {

// Of Layers::SumRowGradients.
constexpr int kNorm1Place = 0, kProjectionBiasPlace = 2, kNorm2Place = 3, kContractBiasPlace = 5;

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
                                                        void* memory) {
  if (call.dropout.probability == 0) return dx();
  BRIGADE_RETURN_IF_ERROR(DropoutBackward(call, place, dx(), memory));
  return memory;
}

absl::Status Transformer::ForwardBlock(int64_t layer, const void* x, const BlockMemory& memory,
                                       const Call& call, zero::UnitScope& unit) {
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
  BRIGADE_RETURN_IF_ERROR(layers_->Row(at[kGelu], 4 * width(), contract, memory.output, stream));
  return AddBranch(call, MlpPlace(layer), contract_bias, at[kMiddle], memory.output);
}

// dx() is the gradient of the block's output, and becomes that of its input. What was not saved is
// made again by the calls of the forward pass, each part before its gradients.
absl::Status Transformer::BackwardBlock(int64_t layer, const BlockSaveOption& option, const void* x,
                                        const BlockMemory& memory, const Call& call,
                                        zero::UnitScope& unit) {
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
  nn::Gradient gradients[kBlockParameters];
  for (int i = 0; i < kBlockParameters; ++i) {
    gradients[i] = GradientOf(unit, BlockParameter(layer, static_cast<Block>(i)));
  }
  const nn::LayerNormInput first = NormOf(x, norm1, at[kMean1], at[kInverse1]),
                           second = NormOf(at[kMiddle], norm2, at[kMean2], at[kInverse2]);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  const auto mark = [&](PassPart part) {
    return MarkPart(part, static_cast<int>(layer) + 1, stream);
  };

  if (option.drops_middle) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputeMiddle));
    BRIGADE_RETURN_IF_ERROR(layers_->Row(at[kAttention], width(), projection, at[kMiddle], stream));
    BRIGADE_RETURN_IF_ERROR(
        AddBranch(call, AttentionPlace(layer), projection_bias, x, at[kMiddle]));
  }
  if (option.drops_pointwise) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputePointwise));
    BRIGADE_RETURN_IF_ERROR(layers_->Norm(second, norm2_bias, at[kNorm2], memory, stream).status());
  }
  if (option.drops_expanded) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputeExpanded));
    BRIGADE_RETURN_IF_ERROR(
        layers_->Column(at[kNorm2], expand, nullptr, 4 * width(), at[kExpanded], stream));
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputePointwise));
    BRIGADE_RETURN_IF_ERROR(layers_->AddBiasGelu(memory, expand_bias, stream));
  } else if (option.drops_pointwise) {
    BRIGADE_RETURN_IF_ERROR(layers_->Gelu(memory, stream));
  }
  BRIGADE_RETURN_IF_ERROR(mark(PassPart::kBackward));
  // Until their own gradients come, dwidth and dqkv are free for that of a branch.
  BRIGADE_ASSIGN_OR_RETURN(const void* const dmlp_branch,
                           BranchGradient(call, MlpPlace(layer), memory.dwidth));
  BRIGADE_RETURN_IF_ERROR(
      layers_->BiasBackward(dmlp_branch, gradients[kContractBias], kContractBiasPlace, stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const all_dmlp_branch,
                           layers_->GatherRows(dmlp_branch, memory.gathered, stream));
  BRIGADE_RETURN_IF_ERROR(layers_->RowBackward(at[kGelu], 4 * width(), contract, all_dmlp_branch,
                                               memory.dmlp, gradients[kContractWeight], stream));
  BRIGADE_RETURN_IF_ERROR(layers_->GeluBackward(memory, stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const all_norm2,
                           layers_->GatherNorm(at[kNorm2], memory, stream));
  BRIGADE_RETURN_IF_ERROR(layers_->ColumnBackward(all_norm2, expand, 4 * width(), memory.dmlp,
                                                  memory.dwidth, gradients[kExpandWeight],
                                                  gradients[kExpandBias], stream));
  BRIGADE_RETURN_IF_ERROR(layers_->NormBackward(second, memory.dwidth, {dx(), true},
                                                gradients[kNorm2Weight], gradients[kNorm2Bias],
                                                kNorm2Place, stream));

  if (option.drops_pointwise) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputePointwise));
    BRIGADE_RETURN_IF_ERROR(layers_->Norm(first, norm1_bias, at[kNorm1], memory, stream).status());
  }
  if (option.drops_qkv) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputeQkv));
    BRIGADE_RETURN_IF_ERROR(
        layers_->Column(at[kNorm1], qkv, qkv_bias, 3 * width(), at[kQkv], stream));
    BRIGADE_RETURN_IF_ERROR(layers_->GatherQkv(memory, stream));
  }
  if (option.drops_attention) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputeAttention));
    BRIGADE_RETURN_IF_ERROR(layers_->Attention(memory, stream));
  }
  BRIGADE_RETURN_IF_ERROR(mark(PassPart::kBackward));
  BRIGADE_ASSIGN_OR_RETURN(const void* const dattention_branch,
                           BranchGradient(call, AttentionPlace(layer), memory.dqkv));
  BRIGADE_RETURN_IF_ERROR(layers_->BiasBackward(dattention_branch, gradients[kProjectionBias],
                                                kProjectionBiasPlace, stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const all_dattention_branch,
                           layers_->GatherRows(dattention_branch, memory.gathered, stream));
  BRIGADE_RETURN_IF_ERROR(layers_->RowBackward(at[kAttention], width(), projection,
                                               all_dattention_branch, memory.dwidth,
                                               gradients[kProjectionWeight], stream));
  BRIGADE_RETURN_IF_ERROR(layers_->AttentionBackward(memory, stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const all_norm1,
                           layers_->GatherNorm(at[kNorm1], memory, stream));
  BRIGADE_RETURN_IF_ERROR(layers_->ColumnBackward(all_norm1, qkv, 3 * width(), memory.dqkv,
                                                  memory.dwidth, gradients[kQkvWeight],
                                                  gradients[kQkvBias], stream));
  BRIGADE_RETURN_IF_ERROR(layers_->NormBackward(first, memory.dwidth, {dx(), true},
                                                gradients[kNorm1Weight], gradients[kNorm1Bias],
                                                kNorm1Place, stream));
  return layers_->SumRowGradients(
      {gradients[kNorm1Weight], gradients[kNorm1Bias], gradients[kProjectionBias],
       gradients[kNorm2Weight], gradients[kNorm2Bias], gradients[kContractBias]},
      stream);
}

}  // namespace brigade::gpt
