// The whole model's gradient against finite differences in double.

#include "brigade/examples/gpt/transformer.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "brigade/tests/examples/gpt/plain_parameters.h"
#include "brigade/tests/nn/lab.h"

namespace brigade::gpt {
namespace {

constexpr ModelOptions kModel = {.layers = 2, .heads = 2, .width = 6, .context = 5};
constexpr int64_t kBatch = 2;

TEST(TransformerTest, TheModelsGradientIsThatOfItsLoss) {
  nn::Lab lab;
  PlainParameters<double> parameters(kModel, 3);
  // Away from where it begins: biases and norms are not 0 and 1, and each path has weight.
  nn::Random random(5, 0);
  for (auto& weights : parameters.weights) {
    for (double& weight : weights) weight = 0.9 * weight + 0.4 * (2 * random.Uniform() - 1);
  }
  auto transformer =
      Transformer::Create(kModel, kBatch, precision::DType::kFloat64, lab.context()).value();
  const nn::Texts texts = {lab.Bytes(kBatch * (kModel.context + 1), 6).data(), kBatch,
                           kModel.context};
  const auto losses = lab.Raw<double>(texts.rows());
  const auto seed = lab.Raw<float>(1);
  seed[0] = 4;
  const auto f = [&] {
    EXPECT_OK(transformer->Forward(texts, losses.data(), parameters, lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return 4 * sum / static_cast<double>(losses.size());
  };
  f();
  ASSERT_OK(transformer->Backward(texts, seed.data(), parameters, lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  const auto gradients = parameters.gradients;
  for (size_t p = 0; p < gradients.size(); ++p) {
    SCOPED_TRACE(p);
    // Of the tokens, those that occur, and one that does not.
    const size_t checked =
        p == kTokens ? 7 * static_cast<size_t>(kModel.width) : gradients[p].size();
    nn::ExpectGradient(absl::MakeSpan(parameters.weights[p]).first(checked),
                       absl::MakeConstSpan(gradients[p]).first(checked), f);
  }
}

TEST(TransformerTest, TheModelBeginsAtTheEntropyOfAByte) {
  nn::Lab lab;
  constexpr ModelOptions kDefault = {};
  PlainParameters<float> parameters(kDefault, 1);
  auto transformer =
      Transformer::Create(kDefault, 2, precision::DType::kFloat32, lab.context()).value();
  const nn::Texts texts = {lab.Bytes(2 * (kDefault.context + 1)).data(), 2, kDefault.context};
  const auto losses = lab.Raw<float>(texts.rows());
  ASSERT_OK(transformer->Forward(texts, losses.data(), parameters, lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  EXPECT_NEAR(sum / static_cast<double>(losses.size()), std::log(256.0), 0.1);
}

TEST(TransformerTest, MemoryIsWhatTheFormulaSays) {
  nn::Lab lab;
  // Per row of 10: blocks have 5 matrices of the width, 3 and twice 4 times the width, 4 statistics
  // and one for each of the 2 heads; then 4 of the width, 4 and 3 times the width, logits, 2
  // statistics. Each ends at 256 bytes. Nothing grows with the square of the context.
  const auto padded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto matrix = [&](int64_t columns) { return padded(10 * columns * 2); };
  const int64_t statistics = padded(10 * 4);
  const int64_t wanted =
      2 * (5 * matrix(6) + matrix(18) + 2 * matrix(24) + 4 * statistics + padded(2 * 10 * 4)) +
      4 * matrix(6) + matrix(24) + matrix(18) + matrix(256) + 2 * statistics;
  EXPECT_EQ(Transformer::ActivationBytes(kModel, kBatch, precision::DType::kBFloat16), wanted);
  const int64_t before = lab.context().memory_stats().current_bytes(device::Purpose::kScratch);
  auto transformer =
      Transformer::Create(kModel, kBatch, precision::DType::kBFloat16, lab.context()).value();
  EXPECT_EQ(lab.context().memory_stats().current_bytes(device::Purpose::kActivations), wanted);
  // Where the rows of each token begin, and their parts; and the rows. Then attention: a number for
  // each row and head; and for each of the 4 heads a matrix [64, 16], as there is one tile only.
  EXPECT_EQ(transformer->layers_bytes(),
            2 * padded(257 * 8) + padded(10 * 4) + padded(2 * 10 * 4) + 4 * 64 * 16 * 4);
  EXPECT_EQ(lab.context().memory_stats().current_bytes(device::Purpose::kScratch) - before,
            Transformer::WorkspaceBytes(kModel, kBatch, precision::DType::kBFloat16) +
                transformer->layers_bytes());
}

TEST(ModelTest, NumbersOfParametersAreThoseOfTheSpec) {
  const zero::ModelSpec spec = SpecOf(kModel);
  std::vector<std::string> names;
  for (const zero::UnitSpec& unit : spec) {
    for (const zero::ParameterSpec& parameter : unit.parameters) names.push_back(parameter.name);
  }
  EXPECT_EQ(names[kPositions], "positions");
  EXPECT_EQ(names[static_cast<size_t>(BlockParameter(1, kContractBias))], "h.1.contract.bias");
  EXPECT_EQ(names[static_cast<size_t>(BlockParameter(0, kQkvWeight))], "h.0.qkv.weight");
  EXPECT_EQ(names[static_cast<size_t>(HeadParameter(kModel, kFinalNormBias))], "norm.bias");
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(ModelTest, WeightsBeginWithTheDeviationsOfGpt2) {
  const ModelOptions model = {.layers = 8, .heads = 2, .width = 64, .context = 64};
  const auto deviation = [&](int parameter, int64_t size) {
    std::vector<float> values(static_cast<size_t>(size));
    InitializeParameter(model, parameter, 1, absl::MakeSpan(values));
    double sum = 0, squares = 0;
    for (const float value : values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const auto count = static_cast<double>(size);
    EXPECT_NEAR(sum / count, 0, 5 * 0.02 / std::sqrt(count));
    return std::sqrt(squares / count);
  };
  // Known to 1 / sqrt(2 n) of 4096 elements and more: 1.1 %.
  EXPECT_NEAR(deviation(kTokens, 256 * 64), 0.02, 0.001);
  EXPECT_NEAR(deviation(kPositions, 64 * 64), 0.02, 0.001);
  EXPECT_NEAR(deviation(BlockParameter(3, kQkvWeight), 3 * 64 * 64), 0.02, 0.001);
  EXPECT_NEAR(deviation(BlockParameter(3, kExpandWeight), 4 * 64 * 64), 0.02, 0.001);
  // Two for each of the 8 layers add up in the residual stream.
  EXPECT_NEAR(deviation(BlockParameter(3, kProjectionWeight), 64 * 64), 0.005, 0.00025);
  EXPECT_NEAR(deviation(BlockParameter(3, kContractWeight), 4 * 64 * 64), 0.005, 0.00025);
}

TEST(ModelTest, BadSizesAreNamed) {
  EXPECT_EQ(Validate({.layers = 0}),
            absl::InvalidArgumentError("the model's number of layers is 0; it must be 1 to 1000"));
  EXPECT_EQ(
      Validate({.heads = 3, .width = 128}),
      absl::InvalidArgumentError("the model's width is 128; it must be a multiple of its 3 heads"));
}

}  // namespace
}  // namespace brigade::gpt
