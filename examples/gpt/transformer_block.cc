// A block's forward and backward pass.

#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/nn/layer_norm.h"

namespace brigade::gpt {

void* Transformer::Output(int64_t layer) {
  return layer + 1 == model_.layers ? all_.x : blocks_[static_cast<size_t>(layer) + 1].x;
}

absl::Status Transformer::ForwardBlock(int64_t layer, zero::UnitScope& unit,
                                       device::Stream& stream) {
  const BlockActivations& block = blocks_[static_cast<size_t>(layer)];
  const int64_t width = model_.width;
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

  BRIGADE_RETURN_IF_ERROR(
      nn::LayerNorm({dtype_, block.x, norm1, block.mean1, block.inverse1, rows_, width}, norm1_bias,
                    block.norm1, stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::Linear(Product(block.norm1, width, qkv, 3 * width), qkv_bias, block.qkv, *blas_, stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::Attention(Attention(), block.qkv, block.attention, block.log_sum_exp, stream));
  BRIGADE_RETURN_IF_ERROR(nn::Linear(Product(block.attention, width, projection, width), nullptr,
                                     block.middle, *blas_, stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::AddBias(Shape(width), block.middle, projection_bias, block.x, stream));

  BRIGADE_RETURN_IF_ERROR(
      nn::LayerNorm({dtype_, block.middle, norm2, block.mean2, block.inverse2, rows_, width},
                    norm2_bias, block.norm2, stream));
  BRIGADE_RETURN_IF_ERROR(nn::Linear(Product(block.norm2, width, expand, 4 * width), nullptr,
                                     block.expanded, *blas_, stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::AddBiasGelu(Shape(4 * width), block.expanded, expand_bias, block.gelu, stream));
  void* const output = Output(layer);
  BRIGADE_RETURN_IF_ERROR(
      nn::Linear(Product(block.gelu, 4 * width, contract, width), nullptr, output, *blas_, stream));
  return nn::AddBias(Shape(width), output, contract_bias, block.middle, stream);
}

// all_.dx is the gradient of the block's output, and becomes that of its input.
absl::Status Transformer::BackwardBlock(int64_t layer, zero::UnitScope& unit,
                                        device::Stream& stream) {
  const BlockActivations& block = blocks_[static_cast<size_t>(layer)];
  const int64_t width = model_.width;
  const auto weights = [&](Block which) { return unit.weights(BlockParameter(layer, which)); };
  const auto gradient = [&](Block which) { return GradientOf(unit, BlockParameter(layer, which)); };
  const void* const norm1 = weights(kNorm1Weight);
  const void* const qkv = weights(kQkvWeight);
  const void* const projection = weights(kProjectionWeight);
  const void* const norm2 = weights(kNorm2Weight);
  const void* const expand = weights(kExpandWeight);
  const void* const contract = weights(kContractWeight);
  nn::Gradient gradients[kBlockParameters];
  for (int i = 0; i < kBlockParameters; ++i) gradients[i] = gradient(static_cast<Block>(i));
  BRIGADE_RETURN_IF_ERROR(unit.status());

  BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(Product(block.gelu, 4 * width, contract, width),
                                             all_.dx, {all_.dmlp}, gradients[kContractWeight],
                                             gradients[kContractBias], *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::GeluBackward(Shape(4 * width), block.expanded, all_.dmlp, stream));
  BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(Product(block.norm2, width, expand, 4 * width),
                                             all_.dmlp, {all_.dwidth}, gradients[kExpandWeight],
                                             gradients[kExpandBias], *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::LayerNormBackward(
      {dtype_, block.middle, norm2, block.mean2, block.inverse2, rows_, width}, all_.dwidth,
      {all_.dx, true}, gradients[kNorm2Weight], gradients[kNorm2Bias], workspace_, stream));

  BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(
      Product(block.attention, width, projection, width), all_.dx, {all_.dwidth},
      gradients[kProjectionWeight], gradients[kProjectionBias], *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::AttentionBackward(Attention(), block.qkv, block.attention,
                                                block.log_sum_exp, all_.dwidth,
                                                attention_workspace_.data(), all_.dqkv, stream));
  BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(Product(block.norm1, width, qkv, 3 * width), all_.dqkv,
                                             {all_.dwidth}, gradients[kQkvWeight],
                                             gradients[kQkvBias], *blas_, workspace_, stream));
  return nn::LayerNormBackward({dtype_, block.x, norm1, block.mean1, block.inverse1, rows_, width},
                               all_.dwidth, {all_.dx, true}, gradients[kNorm1Weight],
                               gradients[kNorm1Bias], workspace_, stream);
}

}  // namespace brigade::gpt
