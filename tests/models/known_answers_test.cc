// Models that transformers has written: logits, loss and gradients are those that PyTorch computes
// in float64 (reference.py). BRIGADE_MODELS names another folder of them, which reference_test.sh
// has made; BRIGADE_SAVED one in which to save each again, for transformers to read.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/models/weights.h"
#include "brigade/tests/models/answers.h"
#include "brigade/tests/models/lab.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using precision::DType;

std::string Folder() {
  const char* const other = std::getenv("BRIGADE_MODELS");
  return other == nullptr ? KnownAnswers() : other;
}

std::vector<std::string> Cases() { return CasesIn(Folder()); }

class KnownAnswersTest : public ::testing::TestWithParam<std::tuple<std::string, Kind>> {};
INSTANTIATE_TEST_SUITE_P(Models, KnownAnswersTest,
                         ::testing::Combine(::testing::ValuesIn(Cases()),
                                            ::testing::ValuesIn(Kinds(1e-1))),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               std::get<1>(info.param).name);
                         });

TEST_P(KnownAnswersTest, LogitsLossAndGradientsAreThoseOfTheReference) {
  const auto& [name, given] = GetParam();
  Kind kind = given;
  const std::string folder = absl::StrCat(Folder(), "/", name);
  const auto config = ReadConfig(folder);
  ASSERT_OK(config);
  // GPT-2 has no rotations; what is left is the answers' rounding to float.
  const bool rotates = config->architecture == Architecture::kLlama;
  if (!rotates && kind.dtype == DType::kFloat64) kind.error = 5e-7;
  auto answers = checkpoint::WeightFiles::Open(folder + "/answers.safetensors");
  ASSERT_OK(answers);
  constexpr int64_t kSamples = 2, kPositions = 11;
  ModelLab lab(*config, {.dtype = kind.dtype,
                         .samples = kSamples,
                         .positions = kPositions,
                         .recompute = kind.recompute});
  ASSERT_OK(LoadWeights(folder, lab.model(), lab.arrays(), lab.context()));

  const auto ids = lab.Filled(Tensor<int32_t>(*answers, "ids"));
  const auto labels = Tensor<int32_t>(*answers, "labels");
  ASSERT_EQ(labels.size(), static_cast<size_t>(kSamples * kPositions));
  const auto count = static_cast<double>(labels.size()) -
                     static_cast<double>(std::count(labels.begin(), labels.end(), kIgnored));
  const Batch batch = {ids.data(), lab.Filled(labels).data(), kSamples, kPositions};
  const std::vector<double> losses = lab.Losses(batch);
  double sum = 0;
  for (size_t r = 0; r < losses.size(); ++r) {
    if (labels[r] == kIgnored) {
      ASSERT_EQ(losses[r], 0) << r;
    }
    sum += losses[r];
  }
  const auto loss = Tensor<float>(*answers, "loss");
  EXPECT_NEAR(sum / count, static_cast<double>(loss.at(0)), kind.error * loss.at(0));
  const std::vector<double> logits =
      lab.Read(lab.model().logits(), kSamples * kPositions * config->vocabulary);
  const double error_of_logits = Error(logits, Tensor<float>(*answers, "logits"));
  EXPECT_LT(error_of_logits, kind.error);
  // Else nothing has been rounded to the type.
  if (precision::SizeOf(kind.dtype) == 2) {
    EXPECT_GT(error_of_logits, 1e-5);
  }

  const auto seed = lab.Filled<float>({static_cast<float>(1 / count)});
  ASSERT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
  const auto parameters = lab.parameters();
  ASSERT_EQ(answers->tensors().size(), 4 + parameters.size());
  double worst = 0;
  for (int p = 0; p < lab.arrays().size(); ++p) {
    const std::string& parameter = parameters[static_cast<size_t>(p)].name;
    const double error = Error(lab.Read(lab.arrays().gradient(p), lab.arrays().size_of(p)),
                               Tensor<float>(*answers, "gradient:" + parameter));
    EXPECT_LT(error, 2 * kind.error) << parameter;
    worst = std::max(worst, error);
  }
  RecordProperty("error_of_logits", absl::StrCat(error_of_logits));
  RecordProperty("error_of_gradients", absl::StrCat(worst));
}

TEST(KnownAnswers, ThereAreModelsOfBothKinds) {
  const std::vector<std::string> cases = Cases();
  EXPECT_NE(std::find(cases.begin(), cases.end(), "llama_grouped"), cases.end());
  EXPECT_NE(std::find(cases.begin(), cases.end(), "gpt2"), cases.end());
}

TEST(KnownAnswers, AreSavedForTheReference) {
  const char* const saved = std::getenv("BRIGADE_SAVED");
  if (saved == nullptr) GTEST_SKIP() << "reference_test.sh says where";
  for (const std::string& name : Cases()) {
    for (const auto& [dtype, suffix] :
         {std::pair{DType::kFloat32, "-saved"}, {DType::kBFloat16, "-bfloat16"}}) {
      const std::string folder = absl::StrCat(Folder(), "/", name);
      const auto config = ReadConfig(folder);
      ASSERT_OK(config);
      ModelLab lab(*config, {.dtype = dtype, .trains = false});
      ASSERT_OK(LoadWeights(folder, lab.model(), lab.arrays(), lab.context()));
      // Some in several files.
      const int64_t most = name == "gpt2" ? 10'000 : int64_t{1} << 30;
      ASSERT_OK(SaveWeights(absl::StrCat(saved, "/", name, suffix), lab.model(), lab.arrays(),
                            lab.context(), {.most_file_bytes = most}));
    }
  }
}

}  // namespace
}  // namespace brigade::models
