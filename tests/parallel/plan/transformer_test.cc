#include "brigade/parallel/plan/transformer.h"

#include <cmath>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

Transformer Named(const char* name) { return *TransformerByName(name); }

TEST(TransformerTest, HasTwelveWidthsSquaredInABlock) {
  for (const int64_t h : {1, 4, 128, 10240}) {
    const Transformer model = {.layers = 1, .width = h, .heads = 1};
    EXPECT_EQ(ParametersOfLayer(model).total(), 12 * h * h + 13 * h) << h;
    EXPECT_EQ(ParametersOfLayer(model).whole, 6 * h) << h;
  }
}

// arXiv 2104.07857: 20 bytes for each of 12 L h^2 parameters.
TEST(TransformerTest, NeedsTheStateThatZeroInfinityPrints) {
  const auto tebibytes = [](int64_t layers, int64_t width) {
    const Transformer model = {.layers = layers, .width = width, .heads = 1};
    const LayerParameters layer = ParametersOfLayer(model);
    return 20.0 * static_cast<double>(layers * (layer.total() - 13 * width)) / std::exp2(40);
  };
  EXPECT_NEAR(tebibytes(80, 10240), 1.83, 0.005);
  EXPECT_NEAR(tebibytes(128, 25600), 18.31, 0.005);
  EXPECT_NEAR(tebibytes(195, 65536), 182.81, 0.005);
}

TEST(TransformerTest, HasAsManyParametersAsArePublished) {
  const auto billions = [](const char* name) {
    return std::round(static_cast<double>(Parameters(Named(name))) / 1e8) / 10;
  };
  EXPECT_EQ(billions("gpt-1.7b"), 1.7);
  EXPECT_EQ(billions("gpt-3.6b"), 3.6);
  EXPECT_EQ(billions("gpt-7.5b"), 7.5);
  EXPECT_EQ(billions("gpt-18b"), 18.4);
  EXPECT_EQ(billions("gpt-39b"), 39.1);
  EXPECT_EQ(billions("gpt-76b"), 76.1);
  EXPECT_EQ(billions("gpt-145b"), 145.6);
  EXPECT_EQ(billions("gpt-310b"), 310.1);
  EXPECT_EQ(billions("gpt-530b"), 529.6);
  EXPECT_EQ(billions("gpt-1t"), 1008.0);
  EXPECT_NEAR(billions("llama-405b"), 405, 1);
}

// 96 B s L h^2 (1 + s/(6h) + V/(16hL)), and 72 with 12.
TEST(TransformerTest, CountsOperationsAsMegatronDoes) {
  const Transformer model = Named("gpt-175b");
  const double texts = 1536, s = 2048, L = 96, h = 12288, V = 51200;
  const double unit = texts * s * L * h * h;
  const double all = 96 * unit * (1 + s / (6 * h) + V / (16 * h * L));
  EXPECT_NEAR(ModelFlops(model, texts, true, false) / all, 1, 1e-12);
  const double models = 72 * unit * (1 + s / (6 * h) + V / (12 * h * L));
  EXPECT_NEAR(ModelFlops(model, texts, false, false) / models, 1, 1e-12);
  const double causal = 72 * unit * (1 + s / (12 * h) + V / (12 * h * L));
  EXPECT_NEAR(ModelFlops(model, texts, false, true) / causal, 1, 1e-12);
}

TEST(TransformerTest, MakesGpt3OfItsNumberOfParameters) {
  ASSERT_OK_AND_ASSIGN(const Transformer model, TransformerOfParameters(175e9, 2048, 51200));
  EXPECT_EQ(model.layers, 96);
  EXPECT_EQ(model.width, 12288);
  EXPECT_EQ(model.heads, 96);
  EXPECT_OK(Validate(model));
}

TEST(TransformerTest, MakesModelsOfAboutAnyNumberOfParameters) {
  for (double parameters = 3e7; parameters < 1e14; parameters *= 3) {
    ASSERT_OK_AND_ASSIGN(const Transformer model, TransformerOfParameters(parameters, 2048, 51200));
    EXPECT_OK(Validate(model));
    EXPECT_NEAR(static_cast<double>(Parameters(model)) / parameters, 1, 0.1) << parameters;
  }
}

TEST(TransformerTest, RefusesWhatIsNoModel) {
  EXPECT_THAT(TransformerByName("gpt-5"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("there is no model \"gpt-5\"; there are gpt-1.2b, ")));
  EXPECT_THAT(TransformerOfParameters(1, 2048, 51200),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the number of parameters is 1; it must be 1e7 to 1e14"));
  Transformer model = Named("gpt-175b");
  model.heads = 7;
  EXPECT_THAT(Validate(model), StatusIs(absl::StatusCode::kInvalidArgument,
                                        "the model's width 12288 is no multiple of its 7 heads"));
  model.layers = 0;
  EXPECT_THAT(Validate(model), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("the model's layers is 0; it must be 1 to")));
}

}  // namespace
}  // namespace brigade::parallel
