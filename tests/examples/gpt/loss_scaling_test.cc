// What loss scaling keeps: the model's gradient in 16 bits at several scales, beside that in fp32.
// The table that this prints is in docs/mixed_precision.md.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/strings/str_format.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/corpus.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/examples/gpt/plain_parameters.h"
#include "brigade/tests/nn/lab.h"

namespace brigade::gpt {
namespace {

using precision::BFloat16;
using precision::DType;
using precision::Half;

// The example's model, and its whole default batch.
constexpr ModelOptions kModel = {};
constexpr int64_t kBatch = 16;
constexpr int64_t kTextBytes = kModel.context + 1;

// The model in type T on one rank.
template <typename T>
class OneRank {
 public:
  OneRank() : losses_(lab_.Raw<float>(kBatch * kModel.context)), seed_(lab_.Raw<float>(1)) {}

  // Of the step's batch, with the loss multiplied by `scale`.
  void ComputeGradients(int64_t step, float scale) {
    for (int64_t i = 0; i < kBatch; ++i) {
      SampleText(corpus_, 1, step, i, texts_.subspan(i * kTextBytes, kTextBytes));
    }
    seed_[0] = scale;
    const nn::Texts texts = {texts_.data(), kBatch, kModel.context};
    EXPECT_OK(transformer_->Forward({}, texts, losses_.data(), {}, parameters, lab_.stream()));
    EXPECT_OK(transformer_->Backward({}, texts, seed_.data(), {}, parameters, lab_.stream()));
    EXPECT_OK(lab_.stream().Synchronize());
  }

  double Loss() const {
    double sum = 0;
    for (const float loss : losses_) sum += static_cast<double>(loss);
    return sum / static_cast<double>(losses_.size());
  }

  PlainParameters<T> parameters{kModel, 1};

 private:
  static constexpr DType kDType = std::is_same_v<T, float>  ? DType::kFloat32
                                  : std::is_same_v<T, Half> ? DType::kFloat16
                                                            : DType::kBFloat16;
  nn::Lab lab_;
  const Corpus corpus_ = ReadLicences().value();
  const recompute::Chain chain_ = ActivationChain({kModel, kBatch, kDType});
  const std::unique_ptr<Transformer> transformer_ =
      Transformer::Create(
          {kModel, kBatch, kDType},
          PartPlan::Whole(kModel,
                          recompute::Place(chain_, recompute::PlanNone(chain_).value()).value()),
          lab_.context())
          .value();
  const absl::Span<uint8_t> texts_ = lab_.Bytes(kBatch * kTextBytes);
  const absl::Span<float> losses_, seed_;
};

struct Kept {
  double lost = 0;      // share of elements that are zero, though not in fp32
  double off = 0;       // share that differ by more than a tenth
  double overflow = 0;  // share that are not finite
  double error = 0;     // norm of the error, as a share of the gradient's norm
};

// The gradient at the weights of `exact`, whose own gradients are those of `step`.
template <typename T>
Kept Compare(const OneRank<float>& exact, OneRank<T>& low, int64_t step, int power) {
  for (size_t p = 0; p < exact.parameters.weights.size(); ++p) {
    std::transform(exact.parameters.weights[p].begin(), exact.parameters.weights[p].end(),
                   low.parameters.weights[p].begin(), [](float weight) { return T(weight); });
  }
  low.ComputeGradients(step, std::ldexp(1.0f, power));
  Kept kept;
  double count = 0, error = 0, norm = 0;
  for (size_t p = 0; p < exact.parameters.gradients.size(); ++p) {
    for (size_t i = 0; i < exact.parameters.gradients[p].size(); ++i) {
      const auto wanted = static_cast<double>(exact.parameters.gradients[p][i]);
      const double found = std::ldexp(
          static_cast<double>(static_cast<float>(low.parameters.gradients[p][i])), -power);
      if (wanted == 0) continue;
      ++count;
      kept.lost += found == 0;
      kept.off += !(std::abs(found - wanted) <= 0.1 * std::abs(wanted));
      kept.overflow += !std::isfinite(found);
      error += (found - wanted) * (found - wanted);
      norm += wanted * wanted;
    }
  }
  kept = {kept.lost / count, kept.off / count, kept.overflow / count, std::sqrt(error / norm)};
  absl::PrintF("| %s | 2^%d | %.3f %% | %.1f %% | %.3f %% | %s |\n",
               std::is_same_v<T, Half> ? "fp16" : "bf16", power, 100 * kept.lost, 100 * kept.off,
               100 * kept.overflow,
               kept.overflow > 0 ? "none left" : absl::StrFormat("%.2f %%", 100 * kept.error));
  return kept;
}

TEST(LossScalingTest, ScalingKeepsTheGradientsThatFp16Loses) {
  OneRank<float> exact;
  OneRank<Half> half;
  OneRank<BFloat16> bfloat;

  // First weights have large gradients; it is those of a model that has learned something that
  // vanish.
  constexpr int64_t kSteps = 40;
  std::vector<std::vector<float>> momentum = exact.parameters.weights;
  for (auto& each : momentum) std::fill(each.begin(), each.end(), 0.0f);
  for (int64_t step = 0; step < kSteps; ++step) {
    exact.ComputeGradients(step, 1);
    for (size_t p = 0; p < momentum.size(); ++p) {
      for (size_t i = 0; i < momentum[p].size(); ++i) {
        momentum[p][i] = 0.9f * momentum[p][i] + exact.parameters.gradients[p][i];
        exact.parameters.weights[p][i] -= 0.1f * momentum[p][i];
      }
    }
  }
  exact.ComputeGradients(kSteps, 1);
  EXPECT_LT(exact.Loss(), 3.5);

  absl::PrintF("| type | loss scale | lost | off by a tenth | overflow | error |\n");
  const Kept plain = Compare(exact, half, kSteps, 0);
  for (const int power : {4, 8, 12}) Compare(exact, half, kSteps, power);
  const Kept scaled = Compare(exact, half, kSteps, 16);
  Compare(exact, half, kSteps, 20);
  const Kept too_much = Compare(exact, half, kSteps, 24);
  const Kept of_bfloat = Compare(exact, bfloat, kSteps, 0);

  EXPECT_GT(plain.lost, 0.05);
  EXPECT_GT(plain.off, 0.2);
  EXPECT_LT(scaled.lost, 0.0001);
  EXPECT_LT(scaled.off, 0.05);
  EXPECT_EQ(scaled.overflow, 0);
  EXPECT_LT(scaled.error, plain.error / 4);
  EXPECT_GT(too_much.overflow, 0);               // which is why the scale is found while training
  EXPECT_LT(of_bfloat.lost, 0.0001);             // needs no scale
  EXPECT_GT(of_bfloat.error, 4 * scaled.error);  // 8 bits instead of 11
}

}  // namespace
}  // namespace brigade::gpt
