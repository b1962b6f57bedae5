// The example's model as one of models/: the same losses, from a file of its weights.

#include "brigade/examples/gpt/saved_model.h"

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/recompute/planner.h"
#include "brigade/tests/examples/gpt/plain_parameters.h"
#include "brigade/tests/nn/lab.h"
#include "gmock/gmock.h"

namespace brigade::gpt {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr ModelOptions kModel = {.layers = 2, .heads = 2, .width = 6, .context = 5};
constexpr int64_t kBatch = 2;

// Weights away from where they begin, so that each has its part.
std::vector<std::vector<float>> SomeWeights() {
  std::vector<std::vector<float>> all;
  nn::Random random(5, 0);
  for (const auto& weights : PlainParameters<float>(kModel, 3).weights) {
    all.emplace_back();
    for (const float weight : weights) {
      all.back().push_back(
          static_cast<float>(0.9 * static_cast<double>(weight) + 0.4 * (2 * random.Uniform() - 1)));
    }
  }
  return all;
}

// A file as //checkpoint:export writes it. `change` may make other tensors of them.
std::string Written(const std::string& name,
                    const std::function<void(std::vector<checkpoint::TensorInfo>&,
                                             std::vector<std::vector<float>>&)>& change = nullptr) {
  std::vector<checkpoint::TensorInfo> tensors;
  std::vector<std::vector<float>> weights = SomeWeights();
  for (const zero::UnitSpec& unit : SpecOf(kModel)) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      tensors.push_back({.name = parameter.name,
                         .type = "F32",
                         .shape = {parameter.shape.begin(), parameter.shape.end()}});
    }
  }
  if (change) change(tensors, weights);
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name, ".safetensors");
  std::ofstream file(path, std::ios::binary);
  file << checkpoint::MakeHeader(tensors).value();
  for (const auto& values : weights) {
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  return path;
}

TEST(SavedModelTest, HasTheLossesOfTheExamplesOwnPasses) {
  nn::Lab lab;
  PlainParameters<double> parameters(kModel, 3);
  const std::vector<std::vector<float>> weights = SomeWeights();
  for (size_t p = 0; p < weights.size(); ++p) {
    parameters.weights[p].assign(weights[p].begin(), weights[p].end());
  }
  const recompute::Chain chain = ActivationChain({kModel, kBatch, DType::kFloat64});
  const auto schedule = recompute::Place(chain, PlanOf(chain, {}).value()).value();
  auto transformer = Transformer::Create({kModel, kBatch, DType::kFloat64},
                                         PartPlan::Whole(kModel, schedule), lab.context(), {})
                         .value();
  const absl::Span<uint8_t> bytes = lab.Bytes(kBatch * (kModel.context + 1));
  const nn::Texts texts = {bytes.data(), kBatch, kModel.context};
  const auto wanted = lab.Raw<double>(texts.rows()), losses = lab.Raw<double>(texts.rows());
  ASSERT_OK(transformer->Forward({}, texts, wanted.data(), {}, parameters, lab.stream()));

  const auto saved = SavedModel::Open(Written("weights"), kModel.heads);
  ASSERT_OK(saved);
  EXPECT_EQ(saved->options().layers, 2);
  EXPECT_EQ(saved->options().width, 6);
  EXPECT_EQ(saved->options().context, 5);
  auto decoder = models::Decoder::Create(
      saved->config(),
      {.dtype = DType::kFloat64, .samples = kBatch, .positions = kModel.context, .trains = false},
      lab.context());
  ASSERT_OK(decoder);
  auto arrays = models::ParameterArrays::Create((*decoder)->spec(), {.dtype = DType::kFloat64},
                                                lab.context());
  ASSERT_OK(arrays);
  ASSERT_OK(saved->Load(**decoder, *arrays, lab.context()));
  const auto ids = lab.Raw<int32_t>(texts.rows()), labels = lab.Raw<int32_t>(texts.rows());
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t t = 0; t < kModel.context; ++t) {
      const auto row = static_cast<size_t>(b * kModel.context + t);
      const auto at = static_cast<size_t>(b * (kModel.context + 1) + t);
      ids[row] = bytes[at];
      labels[row] = bytes[at + 1];
    }
  }
  ASSERT_OK(models::Forward(**decoder, {ids.data(), labels.data(), kBatch, kModel.context},
                            losses.data(), *arrays, lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (size_t r = 0; r < losses.size(); ++r) EXPECT_NEAR(losses[r], wanted[r], 1e-12 * wanted[r]);
}

TEST(SavedModelTest, NamesWhatIsNotOfThisExample) {
  using Tensors = std::vector<checkpoint::TensorInfo>;
  using Weights = std::vector<std::vector<float>>;
  const auto open = [](const std::string& path, int64_t heads = kModel.heads) {
    return SavedModel::Open(path, heads).status();
  };
  EXPECT_THAT(open(Written("heads"), 0), StatusIs(kInvalid, HasSubstr("how many heads")));
  EXPECT_THAT(open(Written("heads"), 4), StatusIs(kInvalid, HasSubstr("a multiple of its 4")));
  EXPECT_THAT(open("nowhere.safetensors"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nowhere")));
  EXPECT_THAT(open(::testing::TempDir()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("has no checkpoint")));
  EXPECT_THAT(open(Written("turned",
                           [](Tensors& tensors, Weights&) {
                             std::swap(tensors[4].shape[0], tensors[4].shape[1]);
                           })),
              StatusIs(kInvalid, HasSubstr("\"h.0.qkv.weight\" is [6, 18] and not [18, 6]")));
  EXPECT_THAT(open(Written("other",
                           [](Tensors& tensors, Weights&) { tensors[5].name = "h.0.other.bias"; })),
              StatusIs(kInvalid, HasSubstr("there is no parameter \"h.0.qkv.bias\"")));
  EXPECT_THAT(open(Written("more",
                           [](Tensors& tensors, Weights& weights) {
                             tensors.push_back({.name = "more", .type = "F32", .shape = {1}});
                             weights.push_back({1});
                           })),
              StatusIs(kInvalid, HasSubstr("there are 29 tensors; the model has 28 parameters")));
  EXPECT_THAT(open(Written("tokens", [](Tensors& tensors, Weights&) { tensors[0].name = "wte"; })),
              StatusIs(kInvalid, HasSubstr("no model of this example")));
}

}  // namespace
}  // namespace brigade::gpt
