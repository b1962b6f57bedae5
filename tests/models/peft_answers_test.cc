// Adapters that PEFT has written: logits, loss, gradients and merged weights are those that it
// computes in float64 (peft_reference.py). BRIGADE_ADAPTERS names another folder of them, which
// peft_test.sh has made; BRIGADE_SAVED one in which to save each again, for PEFT to read.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/models/adapter_files.h"
#include "brigade/models/merge.h"
#include "brigade/models/weights.h"
#include "brigade/tests/models/answers.h"
#include "brigade/tests/models/lab.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using precision::DType;

// Bazel has links to files, which are not read.
std::string Folder() {
  static const std::string folder = [] {
    const char* const other = std::getenv("BRIGADE_ADAPTERS");
    if (other != nullptr) return std::string(other);
    const std::string copy = absl::StrCat(::testing::TempDir(), "/peft_answers");
    std::filesystem::remove_all(copy);
    std::filesystem::copy("tests/models/peft_answers", copy,
                          std::filesystem::copy_options::recursive);
    return copy;
  }();
  return folder;
}

std::vector<std::string> Cases() { return CasesIn(Folder()); }

// The rows of a transposed parameter as the file has them.
std::vector<double> AsInFile(const zero::ParameterSpec& spec, std::vector<double> values) {
  if (!absl::StrContains(spec.name, ".transposed")) return values;
  std::vector<double> turned(values.size());
  const auto rows = static_cast<size_t>(spec.shape[0]),
             columns = static_cast<size_t>(spec.shape[1]);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) turned[c * rows + r] = values[r * columns + c];
  }
  return turned;
}

// Layers have two more products in a row than without adapters, each of them rounded.
constexpr double kErrorOfBf16 = 2e-1;

class PeftAnswersTest : public ::testing::TestWithParam<std::tuple<std::string, Kind>> {};
INSTANTIATE_TEST_SUITE_P(Models, PeftAnswersTest,
                         ::testing::Combine(::testing::ValuesIn(Cases()),
                                            ::testing::ValuesIn(Kinds(kErrorOfBf16))),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               std::get<1>(info.param).name);
                         });

TEST_P(PeftAnswersTest, LogitsLossGradientsAndMergedWeightsAreThoseOfTheReference) {
  const auto& [name, kind] = GetParam();
  const std::string folder = absl::StrCat(Folder(), "/", name);
  const std::string adapter = folder + "/adapter";
  const auto config = ReadConfig(folder + "/base");
  ASSERT_OK(config);
  const auto lora = ReadAdapterConfig(adapter);
  ASSERT_OK(lora);
  const auto answers = checkpoint::WeightFiles::Open(folder + "/answers.safetensors");
  ASSERT_OK(answers);
  constexpr int64_t kSamples = 2, kPositions = 11;
  ModelLab lab(*config, {.dtype = kind.dtype,
                         .samples = kSamples,
                         .positions = kPositions,
                         .recompute = kind.recompute,
                         .lora = *lora});
  ASSERT_OK(LoadWeights(folder + "/base", lab.model(), lab.arrays(), lab.context(),
                        device::SystemCalls::Real(), {.folder = adapter}));
  const auto ids = lab.Filled(Tensor<int32_t>(*answers, "ids"));
  const auto labels = Tensor<int32_t>(*answers, "labels");
  const auto count = static_cast<double>(labels.size()) -
                     static_cast<double>(std::count(labels.begin(), labels.end(), kIgnored));
  const Batch batch = {ids.data(), lab.Filled(labels).data(), kSamples, kPositions};
  const auto loss = Tensor<float>(*answers, "loss");
  EXPECT_NEAR(lab.SumOfLosses(batch) / count, static_cast<double>(loss.at(0)),
              kind.error * loss.at(0));
  const auto logits = [&] {
    return lab.Read(lab.model().logits(), kSamples * kPositions * config->vocabulary);
  };
  const auto wanted_logits = Tensor<float>(*answers, "logits");
  EXPECT_LT(Error(logits(), wanted_logits), kind.error);

  const auto seed = lab.Filled<float>({static_cast<float>(1 / count)});
  ASSERT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
  const auto parameters = lab.parameters();
  int gradients = 0;
  for (int p = 0; p < lab.arrays().size(); ++p) {
    const zero::ParameterSpec& parameter = parameters[static_cast<size_t>(p)];
    if (!parameter.trainable) {
      EXPECT_EQ(lab.arrays().gradient(p), nullptr) << parameter.name;
      continue;
    }
    ++gradients;
    const std::string in_file(absl::StripSuffix(parameter.name, ".transposed"));
    EXPECT_LT(
        Error(AsInFile(parameter, lab.Read(lab.arrays().gradient(p), lab.arrays().size_of(p))),
              Tensor<float>(*answers, "gradient:" + in_file)),
        2 * kind.error)
        << parameter.name;
  }
  int wanted_gradients = 0;
  for (const auto& tensor : answers->tensors()) {
    wanted_gradients += absl::StartsWith(tensor.name, "gradient:base_model");
  }
  EXPECT_EQ(gradients, wanted_gradients);

  auto merged = MergedAdapters::Merge(lab.model(), lab.arrays(), lab.context());
  ASSERT_OK(merged);
  for (size_t p = 0; p < parameters.size(); ++p) {
    const ParameterRole& role = lab.model().roles()[p];
    if (!role.is_base()) continue;
    const auto number = static_cast<int>(p);
    // A unit in the last place of the type for each value, where adapters add up to more.
    EXPECT_LT(Error(lab.Read(lab.arrays().weights(number), lab.arrays().size_of(number)),
                    Tensor<double>(*answers, "merged:" + role.name)),
              kind.error / 2)
        << role.name;
  }
  lab.Losses(batch);
  EXPECT_LT(Error(logits(), wanted_logits), kind.error);
}

TEST(PeftAnswers, ThereAreModelsOfBothKinds) {
  const std::vector<std::string> cases = Cases();
  EXPECT_NE(std::find(cases.begin(), cases.end(), "llama"), cases.end());
  EXPECT_NE(std::find(cases.begin(), cases.end(), "gpt2"), cases.end());
}

TEST(PeftAnswers, AreSavedForTheReference) {
  const char* const saved = std::getenv("BRIGADE_SAVED");
  if (saved == nullptr) GTEST_SKIP() << "peft_test.sh says where";
  for (const std::string& name : Cases()) {
    const std::string folder = absl::StrCat(Folder(), "/", name);
    const auto config = ReadConfig(folder + "/base");
    ASSERT_OK(config);
    const auto lora = ReadAdapterConfig(folder + "/adapter");
    ASSERT_OK(lora);
    ModelLab lab(*config, {.dtype = DType::kFloat32, .trains = false, .lora = *lora});
    ASSERT_OK(LoadWeights(folder + "/base", lab.model(), lab.arrays(), lab.context()));
    ASSERT_OK(LoadAdapter(folder + "/adapter", lab.model(), lab.arrays(), lab.context()));
    ASSERT_OK(SaveAdapter(absl::StrCat(saved, "/", name, "-saved"), lab.model(), lab.arrays(),
                          lab.context(), folder + "/base"));
  }
}

}  // namespace
}  // namespace brigade::models
