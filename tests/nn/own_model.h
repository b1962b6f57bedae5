#ifndef BRIGADE_TESTS_NN_OWN_MODEL_H_
#define BRIGADE_TESTS_NN_OWN_MODEL_H_

// A model of one's own: how layers are composed.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/dropout.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/linear.h"
#include "brigade/nn/rms_norm.h"
#include "brigade/nn/rotary.h"
#include "brigade/nn/swiglu.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step.h"

namespace brigade {

inline constexpr precision::DType kType = precision::DType::kFloat32;
inline constexpr int64_t kVocabulary = 300, kBatch = 2, kContext = 12, kRows = kBatch * kContext;
inline constexpr int64_t kHeads = 2, kWidth = 16, kInner = 40, kSize = kRows * kWidth;
inline constexpr nn::AttentionShape kAttention = {kType, kBatch, kContext, kHeads, kWidth};
// Queries and keys are rotated, the values behind them are not.
inline constexpr nn::RotaryShape kRotary = {kType, kBatch, kContext, 2 * kHeads, 3 * kWidth};
inline constexpr nn::SwigluShape kSwiglu = {kType, kRows, kInner};

// Memory of the passes, made once, and what their calls have in common.
struct Activations {
  Activations(device::Context& context, device::Stream& stream, const nn::DropoutMask& mask)
      : context(context), stream(stream), mask(mask) {}

  float* Array(int64_t size) {
    buffers.push_back(
        context.Allocate(size * 4, device::Purpose::kActivations, "activations").value());
    return buffers.back().as<float>().data();
  }

  device::Context& context;
  device::Stream& stream;
  const nn::DropoutMask mask;
  const std::unique_ptr<nn::Blas> blas = nn::Blas::Create(context, 0).value();
  const nn::Workspace workspace =
      nn::Workspace::Create(
          context, kType,
          {.rows = kRows, .sums = kWidth, .width = kWidth, .vocabulary = kVocabulary})
          .value();
  const nn::RotaryTable table =
      nn::RotaryTable::Create(
          context, {.dtype = kType, .positions = kContext, .head_width = kWidth / kHeads})
          .value();
  std::vector<device::Buffer> buffers;
  float *x0 = Array(kSize), *x1 = Array(kSize), *x2 = Array(kSize), *y = Array(kSize);
  float *norm1 = Array(kSize), *norm2 = Array(kSize), *norm3 = Array(kSize), *dx = Array(kSize);
  float *rms1 = Array(kRows), *rms2 = Array(kRows), *rms3 = Array(kRows), *losses = Array(kRows);
  float *qkv = Array(3 * kSize), *dqkv = Array(3 * kSize), *heads = Array(kSize),
        *dheads = Array(kSize);
  float* sums = Array(kAttention.statistics());
  float* tiles = Array(nn::AttentionWorkspaceBytes(kAttention, context.device()) / 4);
  float *gate_up = Array(2 * kRows * kInner), *inner = Array(kRows * kInner);
  float *dinner = Array(kRows * kInner), *logits = Array(kRows * kVocabulary);

  nn::Gradient To(zero::UnitScope& unit, int weight) const {
    const zero::GradientTarget target = unit.gradient(weight);
    return {target.data, target.accumulate};
  }
  nn::DropoutMask Mask(uint32_t layer) const {
    nn::DropoutMask of_layer = mask;
    of_layer.layer = layer;
    return of_layer;
  }
  nn::RmsNormInput Norm(zero::UnitScope& unit, int weight, const void* x, void* rms) const {
    return {kType, x, unit.weights(weight), rms, kRows, kWidth};
  }
  absl::Status NormBackward(zero::UnitScope& unit, int weight, const void* x, void* rms,
                            const void* dy, nn::Gradient to) const {
    return nn::RmsNormBackward(Norm(unit, weight, x, rms), dy, to, To(unit, weight), workspace,
                               stream);
  }
  absl::Status Linear(zero::UnitScope& unit, int weight, const void* x, int64_t inputs, void* to,
                      int64_t outputs) const {
    return nn::Linear({kType, x, unit.weights(weight), kRows, inputs, outputs}, nullptr, to, *blas,
                      stream);
  }
  absl::Status LinearBackward(zero::UnitScope& unit, int weight, const void* x, int64_t inputs,
                              const void* dy, int64_t outputs, void* to) const {
    return nn::LinearBackward({kType, x, unit.weights(weight), kRows, inputs, outputs}, dy, {to},
                              To(unit, weight), {}, *blas, workspace, stream);
  }
};

inline zero::ParameterSpec Matrix(std::string name, int64_t outputs, int64_t inputs) {
  return {.name = std::move(name), .size = outputs * inputs, .shape = {outputs, inputs}};
}

// x = tokens[ids], x += attention(norm(x)), x += swiglu(norm(x)), logits = norm(x) head^T.
enum Weight { kTokens, kNorm1, kQkv, kOut, kNorm2, kGateUp, kDown, kNorm3, kHead };
const zero::ModelSpec kSpec = {{"model",
                                {Matrix("tokens", kVocabulary, kWidth),
                                 {"norm1", kWidth},
                                 Matrix("qkv", 3 * kWidth, kWidth),
                                 Matrix("out", kWidth, kWidth),
                                 {"norm2", kWidth},
                                 Matrix("gate_up", 2 * kInner, kWidth),
                                 Matrix("down", kWidth, kInner),
                                 {"norm3", kWidth},
                                 Matrix("head", kVocabulary, kWidth)}}};

struct OwnModel : Activations {
  absl::Status Forward(const nn::TokenIds& ids, zero::ParameterSource& source) {
    zero::UnitScope w(source, 0, zero::Pass::kForward);
    BRIGADE_RETURN_IF_ERROR(w.status());
    BRIGADE_RETURN_IF_ERROR(
        nn::Embedding(ids, kType, kWidth, w.weights(kTokens), nullptr, x0, stream));
    BRIGADE_RETURN_IF_ERROR(nn::RmsNorm(Norm(w, kNorm1, x0, rms1), norm1, stream));
    BRIGADE_RETURN_IF_ERROR(Linear(w, kQkv, norm1, kWidth, qkv, 3 * kWidth));
    BRIGADE_RETURN_IF_ERROR(nn::Rotary(kRotary, table, qkv, stream));
    BRIGADE_RETURN_IF_ERROR(nn::Attention(kAttention, qkv, heads, sums, stream));
    BRIGADE_RETURN_IF_ERROR(Linear(w, kOut, heads, kWidth, y, kWidth));
    BRIGADE_RETURN_IF_ERROR(nn::Dropout(kType, kSize, Mask(1), y, x0, x1, stream));
    BRIGADE_RETURN_IF_ERROR(nn::RmsNorm(Norm(w, kNorm2, x1, rms2), norm2, stream));
    BRIGADE_RETURN_IF_ERROR(Linear(w, kGateUp, norm2, kWidth, gate_up, 2 * kInner));
    BRIGADE_RETURN_IF_ERROR(nn::Swiglu(kSwiglu, gate_up, inner, stream));
    BRIGADE_RETURN_IF_ERROR(Linear(w, kDown, inner, kInner, y, kWidth));
    BRIGADE_RETURN_IF_ERROR(nn::Dropout(kType, kSize, Mask(2), y, x1, x2, stream));
    BRIGADE_RETURN_IF_ERROR(nn::RmsNorm(Norm(w, kNorm3, x2, rms3), norm3, stream));
    BRIGADE_RETURN_IF_ERROR(Linear(w, kHead, norm3, kWidth, logits, kVocabulary));
    BRIGADE_RETURN_IF_ERROR(nn::CrossEntropy(ids, kType, logits, losses, stream));
    return w.Release();
  }

  absl::Status Backward(const nn::TokenIds& ids, const float* seed, zero::ParameterSource& source) {
    zero::UnitScope w(source, 0, zero::Pass::kBackward);
    BRIGADE_RETURN_IF_ERROR(w.status());
    BRIGADE_RETURN_IF_ERROR(nn::CrossEntropyBackward(ids, kType, logits, seed, stream));
    BRIGADE_RETURN_IF_ERROR(LinearBackward(w, kHead, norm3, kWidth, logits, kVocabulary, y));
    BRIGADE_RETURN_IF_ERROR(NormBackward(w, kNorm3, x2, rms3, y, {dx}));
    BRIGADE_RETURN_IF_ERROR(nn::DropoutBackward(kType, kSize, Mask(2), dx, {y}, stream));
    BRIGADE_RETURN_IF_ERROR(LinearBackward(w, kDown, inner, kInner, y, kWidth, dinner));
    BRIGADE_RETURN_IF_ERROR(nn::SwigluBackward(kSwiglu, gate_up, dinner, {gate_up}, stream));
    BRIGADE_RETURN_IF_ERROR(LinearBackward(w, kGateUp, norm2, kWidth, gate_up, 2 * kInner, y));
    BRIGADE_RETURN_IF_ERROR(NormBackward(w, kNorm2, x1, rms2, y, {dx, true}));
    BRIGADE_RETURN_IF_ERROR(nn::DropoutBackward(kType, kSize, Mask(1), dx, {y}, stream));
    BRIGADE_RETURN_IF_ERROR(LinearBackward(w, kOut, heads, kWidth, y, kWidth, dheads));
    BRIGADE_RETURN_IF_ERROR(
        nn::AttentionBackward(kAttention, qkv, heads, sums, dheads, tiles, dqkv, stream));
    BRIGADE_RETURN_IF_ERROR(nn::RotaryBackward(kRotary, table, dqkv, stream));
    BRIGADE_RETURN_IF_ERROR(LinearBackward(w, kQkv, norm1, kWidth, dqkv, 3 * kWidth, y));
    BRIGADE_RETURN_IF_ERROR(NormBackward(w, kNorm1, x0, rms1, y, {dx, true}));
    BRIGADE_RETURN_IF_ERROR(
        nn::EmbeddingBackward(ids, kType, kWidth, dx, To(w, kTokens), {}, workspace, stream));
    BRIGADE_RETURN_IF_ERROR(w.Release());
    return source.GradientsReady(0);
  }
};

}  // namespace brigade

#endif  // BRIGADE_TESTS_NN_OWN_MODEL_H_
