// A block's forward and backward pass.

#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/pass_times.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/nn/layer_norm.h"

namespace brigade::gpt {

absl::Status Transformer::AddBranch(const Call& call, uint32_t place, const void* bias,
                                    const void* residual, void* x) {
  if (call.dropout.probability == 0) {
    return nn::AddBias(Shape(model_.width), x, bias, residual, call.stream);
  }
  BRIGADE_RETURN_IF_ERROR(nn::AddBias(Shape(model_.width), x, bias, nullptr, call.stream));
  return nn::Dropout(dtype_, rows_ * model_.width, Mask(call, place), x, residual, x, call.stream);
}

absl::StatusOr<const void*> Transformer::BranchGradient(const Call& call, uint32_t place,
                                                        void* memory) {
  if (call.dropout.probability == 0) return dx();
  BRIGADE_RETURN_IF_ERROR(nn::DropoutBackward(dtype_, rows_ * model_.width, Mask(call, place), dx(),
                                              {memory}, call.stream));
  return memory;
}

absl::Status Transformer::ForwardBlock(int64_t layer, const void* x, const BlockMemory& memory,
                                       const Call& call, zero::UnitScope& unit) {
  device::Stream& stream = call.stream;
  const int64_t width = model_.width;
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

  BRIGADE_RETURN_IF_ERROR(nn::LayerNorm({dtype_, x, norm1, at[kMean1], at[kInverse1], rows_, width},
                                        norm1_bias, at[kNorm1], stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::Linear(Product(at[kNorm1], width, qkv, 3 * width), qkv_bias, at[kQkv], *blas_, stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::Attention(Attention(), at[kQkv], at[kAttention], at[kLogSumExp], stream));
  BRIGADE_RETURN_IF_ERROR(nn::Linear(Product(at[kAttention], width, projection, width), nullptr,
                                     at[kMiddle], *blas_, stream));
  BRIGADE_RETURN_IF_ERROR(AddBranch(call, AttentionPlace(layer), projection_bias, x, at[kMiddle]));

  BRIGADE_RETURN_IF_ERROR(
      nn::LayerNorm({dtype_, at[kMiddle], norm2, at[kMean2], at[kInverse2], rows_, width},
                    norm2_bias, at[kNorm2], stream));
  BRIGADE_RETURN_IF_ERROR(nn::Linear(Product(at[kNorm2], width, expand, 4 * width), nullptr,
                                     at[kExpanded], *blas_, stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::AddBiasGelu(Shape(4 * width), at[kExpanded], expand_bias, at[kGelu], stream));
  BRIGADE_RETURN_IF_ERROR(nn::Linear(Product(at[kGelu], 4 * width, contract, width), nullptr,
                                     memory.output, *blas_, stream));
  return AddBranch(call, MlpPlace(layer), contract_bias, at[kMiddle], memory.output);
}

// dx() is the gradient of the block's output, and becomes that of its input. What was not saved is
// made again by the calls of the forward pass, each part before its gradients.
absl::Status Transformer::BackwardBlock(int64_t layer, const BlockSaveOption& option, const void* x,
                                        const BlockMemory& memory, const Call& call,
                                        zero::UnitScope& unit) {
  device::Stream& stream = call.stream;
  const int64_t width = model_.width;
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
  const nn::LayerNormInput first = {dtype_, x, norm1, at[kMean1], at[kInverse1], rows_, width};
  const nn::LayerNormInput second = {dtype_,        at[kMiddle], norm2, at[kMean2],
                                     at[kInverse2], rows_,       width};
  BRIGADE_RETURN_IF_ERROR(unit.status());
  const auto mark = [&](PassPart part) {
    return MarkPart(part, static_cast<int>(layer) + 1, stream);
  };

  if (option.drops_middle) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputeMiddle));
    BRIGADE_RETURN_IF_ERROR(nn::Linear(Product(at[kAttention], width, projection, width), nullptr,
                                       at[kMiddle], *blas_, stream));
    BRIGADE_RETURN_IF_ERROR(
        AddBranch(call, AttentionPlace(layer), projection_bias, x, at[kMiddle]));
  }
  if (option.drops_pointwise) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputePointwise));
    BRIGADE_RETURN_IF_ERROR(nn::LayerNorm(second, norm2_bias, at[kNorm2], stream));
  }
  if (option.drops_expanded) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputeExpanded));
    BRIGADE_RETURN_IF_ERROR(nn::Linear(Product(at[kNorm2], width, expand, 4 * width), nullptr,
                                       at[kExpanded], *blas_, stream));
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputePointwise));
    BRIGADE_RETURN_IF_ERROR(
        nn::AddBiasGelu(Shape(4 * width), at[kExpanded], expand_bias, at[kGelu], stream));
  } else if (option.drops_pointwise) {
    BRIGADE_RETURN_IF_ERROR(nn::Gelu(Shape(4 * width), at[kExpanded], at[kGelu], stream));
  }
  BRIGADE_RETURN_IF_ERROR(mark(PassPart::kBackward));
  // Until their own gradients come, dwidth and dqkv are free for that of a branch.
  BRIGADE_ASSIGN_OR_RETURN(const void* const dmlp_branch,
                           BranchGradient(call, MlpPlace(layer), memory.dwidth));
  BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(Product(at[kGelu], 4 * width, contract, width),
                                             dmlp_branch, {memory.dmlp}, gradients[kContractWeight],
                                             gradients[kContractBias], *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::GeluBackward(Shape(4 * width), at[kExpanded], memory.dmlp, stream));
  BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(Product(at[kNorm2], width, expand, 4 * width),
                                             memory.dmlp, {memory.dwidth}, gradients[kExpandWeight],
                                             gradients[kExpandBias], *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::LayerNormBackward(second, memory.dwidth, {dx(), true},
                                                gradients[kNorm2Weight], gradients[kNorm2Bias],
                                                workspace_, stream));

  if (option.drops_pointwise) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputePointwise));
    BRIGADE_RETURN_IF_ERROR(nn::LayerNorm(first, norm1_bias, at[kNorm1], stream));
  }
  if (option.drops_qkv) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputeQkv));
    BRIGADE_RETURN_IF_ERROR(
        nn::Linear(Product(at[kNorm1], width, qkv, 3 * width), qkv_bias, at[kQkv], *blas_, stream));
  }
  if (option.drops_attention) {
    BRIGADE_RETURN_IF_ERROR(mark(PassPart::kRecomputeAttention));
    BRIGADE_RETURN_IF_ERROR(
        nn::Attention(Attention(), at[kQkv], at[kAttention], at[kLogSumExp], stream));
  }
  BRIGADE_RETURN_IF_ERROR(mark(PassPart::kBackward));
  BRIGADE_ASSIGN_OR_RETURN(const void* const dattention_branch,
                           BranchGradient(call, AttentionPlace(layer), memory.dqkv));
  BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(
      Product(at[kAttention], width, projection, width), dattention_branch, {memory.dwidth},
      gradients[kProjectionWeight], gradients[kProjectionBias], *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::AttentionBackward(Attention(), at[kQkv], at[kAttention],
                                                at[kLogSumExp], memory.dwidth,
                                                attention_workspace_.data(), memory.dqkv, stream));
  BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(Product(at[kNorm1], width, qkv, 3 * width),
                                             memory.dqkv, {memory.dwidth}, gradients[kQkvWeight],
                                             gradients[kQkvBias], *blas_, workspace_, stream));
  return nn::LayerNormBackward(first, memory.dwidth, {dx(), true}, gradients[kNorm1Weight],
                               gradients[kNorm1Bias], workspace_, stream);
}

}  // namespace brigade::gpt
