#include "brigade/examples/gpt/transformer.h"

#include <algorithm>
#include <utility>

#include "brigade/device/status_macros.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/layer_norm.h"

namespace brigade::gpt {

// Cuts memory into arrays that begin at multiples of 256 bytes; without memory it only counts.
class Transformer::Arena {
 public:
  explicit Arena(void* memory) : memory_(static_cast<char*>(memory)) {}

  void* Take(int64_t bytes) {
    void* const array = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return array;
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* const memory_;
  int64_t bytes_ = 0;
};

void Transformer::LayOut(const ModelOptions& model, int64_t batch, precision::DType dtype,
                         Arena& arena, Activations& all, std::vector<BlockActivations>& blocks) {
  const int64_t rows = batch * model.context;
  const auto matrix = [&](int64_t columns) {
    return arena.Take(rows * columns * precision::SizeOf(dtype));
  };
  const auto statistics = [&](int64_t columns = 1) {
    return arena.Take(rows * columns *
                      (dtype == precision::DType::kFloat64 ? sizeof(double) : sizeof(float)));
  };
  blocks.resize(static_cast<size_t>(model.layers));
  for (BlockActivations& block : blocks) {
    block = {.x = matrix(model.width),
             .norm1 = matrix(model.width),
             .mean1 = statistics(),
             .inverse1 = statistics(),
             .qkv = matrix(3 * model.width),
             .attention = matrix(model.width),
             .log_sum_exp = statistics(model.heads),
             .middle = matrix(model.width),
             .norm2 = matrix(model.width),
             .mean2 = statistics(),
             .inverse2 = statistics(),
             .expanded = matrix(4 * model.width),
             .gelu = matrix(4 * model.width)};
  }
  all = {.x = matrix(model.width),
         .norm = matrix(model.width),
         .mean = statistics(),
         .inverse = statistics(),
         .logits = matrix(nn::kVocabulary),
         .dx = matrix(model.width),
         .dwidth = matrix(model.width),
         .dmlp = matrix(4 * model.width),
         .dqkv = matrix(3 * model.width)};
}

Transformer::Transformer(const ModelOptions& model, int64_t batch, precision::DType dtype)
    : model_(model), batch_(batch), rows_(batch * model.context), dtype_(dtype) {}

int64_t Transformer::ActivationBytes(const ModelOptions& model, int64_t batch,
                                     precision::DType dtype) {
  Arena arena(nullptr);
  Activations all;
  std::vector<BlockActivations> blocks;
  LayOut(model, batch, dtype, arena, all, blocks);
  return arena.bytes();
}

int64_t Transformer::WorkspaceBytes(const ModelOptions& model, int64_t batch,
                                    precision::DType dtype) {
  const int64_t rows = batch * model.context;
  const auto bytes = [&](int64_t m, int64_t n, int64_t k) {
    return nn::Blas::WorkspaceBytes(dtype, m, n, k);
  };
  return std::max(
      {bytes(rows, 4 * model.width, model.width), bytes(rows, nn::kVocabulary, model.width)});
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(const ModelOptions& model,
                                                                 int64_t batch,
                                                                 precision::DType dtype,
                                                                 device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(Validate(model));
  if (batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch is ", batch, "; it must be at least 1"));
  }
  std::unique_ptr<Transformer> transformer(new Transformer(model, batch, dtype));
  BRIGADE_ASSIGN_OR_RETURN(transformer->memory_,
                           context.Allocate(ActivationBytes(model, batch, dtype),
                                            device::Purpose::kActivations, "activations"));
  Arena arena(transformer->memory_.data());
  LayOut(model, batch, dtype, arena, transformer->all_, transformer->blocks_);
  BRIGADE_ASSIGN_OR_RETURN(transformer->blas_,
                           nn::Blas::Create(context, WorkspaceBytes(model, batch, dtype)));
  BRIGADE_ASSIGN_OR_RETURN(
      transformer->workspace_,
      nn::Workspace::Create(
          context, dtype,
          {.rows = transformer->rows_, .sums = 4 * model.width, .width = model.width}));
  BRIGADE_ASSIGN_OR_RETURN(
      transformer->attention_workspace_,
      context.Allocate(nn::AttentionWorkspaceBytes(transformer->Attention(), context.device()),
                       device::Purpose::kScratch, "workspace of attention"));
  return transformer;
}

absl::Status Transformer::Forward(const nn::Texts& texts, void* losses,
                                  zero::ParameterSource& parameters, device::Stream& stream) {
  constexpr auto kForward = zero::Pass::kForward;
  {
    zero::UnitScope unit(parameters, 0, kForward);
    const void* const tokens = unit.weights(kTokens);
    const void* const positions = unit.weights(kPositions);
    BRIGADE_RETURN_IF_ERROR(unit.status());
    BRIGADE_RETURN_IF_ERROR(
        nn::Embedding(texts, dtype_, model_.width, tokens, positions, blocks_[0].x, stream));
    BRIGADE_RETURN_IF_ERROR(unit.Release());
  }
  for (int64_t layer = 0; layer < model_.layers; ++layer) {
    zero::UnitScope unit(parameters, static_cast<int>(layer) + 1, kForward);
    BRIGADE_RETURN_IF_ERROR(ForwardBlock(layer, unit, stream));
    BRIGADE_RETURN_IF_ERROR(unit.Release());
  }
  zero::UnitScope unit(parameters, static_cast<int>(model_.layers) + 1, kForward);
  const void* const weight = unit.weights(HeadParameter(model_, kFinalNormWeight));
  const void* const bias = unit.weights(HeadParameter(model_, kFinalNormBias));
  const void* const tokens = unit.weights(kTokens);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  BRIGADE_RETURN_IF_ERROR(
      nn::LayerNorm({dtype_, all_.x, weight, all_.mean, all_.inverse, rows_, model_.width}, bias,
                    all_.norm, stream));
  BRIGADE_RETURN_IF_ERROR(nn::Linear(Product(all_.norm, model_.width, tokens, nn::kVocabulary),
                                     nullptr, all_.logits, *blas_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::CrossEntropy(texts, dtype_, all_.logits, losses, stream));
  return unit.Release();
}

absl::Status Transformer::Backward(const nn::Texts& texts, const float* seed,
                                   zero::ParameterSource& parameters, device::Stream& stream) {
  constexpr auto kBackward = zero::Pass::kBackward;
  const int head = static_cast<int>(model_.layers) + 1;
  {
    zero::UnitScope unit(parameters, head, kBackward);
    const void* const weight = unit.weights(HeadParameter(model_, kFinalNormWeight));
    const void* const tokens = unit.weights(kTokens);
    const nn::Gradient dweight = GradientOf(unit, HeadParameter(model_, kFinalNormWeight));
    const nn::Gradient dbias = GradientOf(unit, HeadParameter(model_, kFinalNormBias));
    const nn::Gradient dtokens = GradientOf(unit, kTokens);
    BRIGADE_RETURN_IF_ERROR(unit.status());
    BRIGADE_RETURN_IF_ERROR(nn::CrossEntropyBackward(texts, dtype_, all_.logits, seed, stream));
    BRIGADE_RETURN_IF_ERROR(
        nn::LinearBackward(Product(all_.norm, model_.width, tokens, nn::kVocabulary), all_.logits,
                           {all_.dwidth}, dtokens, {}, *blas_, workspace_, stream));
    BRIGADE_RETURN_IF_ERROR(nn::LayerNormBackward(
        {dtype_, all_.x, weight, all_.mean, all_.inverse, rows_, model_.width}, all_.dwidth,
        {all_.dx, false}, dweight, dbias, workspace_, stream));
    BRIGADE_RETURN_IF_ERROR(unit.Release());
  }
  BRIGADE_RETURN_IF_ERROR(parameters.GradientsReady(head));
  for (int64_t layer = model_.layers; layer-- > 0;) {
    const int index = static_cast<int>(layer) + 1;
    zero::UnitScope unit(parameters, index, kBackward);
    BRIGADE_RETURN_IF_ERROR(BackwardBlock(layer, unit, stream));
    BRIGADE_RETURN_IF_ERROR(unit.Release());
    BRIGADE_RETURN_IF_ERROR(parameters.GradientsReady(index));
  }
  zero::UnitScope unit(parameters, 0, kBackward);
  const nn::Gradient dtokens = GradientOf(unit, kTokens);
  const nn::Gradient dpositions = GradientOf(unit, kPositions);
  BRIGADE_RETURN_IF_ERROR(unit.status());
  BRIGADE_RETURN_IF_ERROR(nn::EmbeddingBackward(texts, dtype_, model_.width, all_.dx, dtokens,
                                                dpositions, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(unit.Release());
  return parameters.GradientsReady(0);
}

}  // namespace brigade::gpt
