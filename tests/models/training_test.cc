// A decoder by a ZeroOptimizer on two ranks: the same losses in every stage, from weights that are
// read from a file.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/models/weights.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/models/lab.h"
#include "brigade/tests/models/small_training.h"
#include "brigade/zero/zero_optimizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr int kSteps = 6;

struct Run {
  std::string name;
  int stage = 0;
  bool recompute = false;
  bool frozen = false;
};

void Train(collectives::Rank& self, const Run& run, std::vector<double>& losses) {
  const std::string folder = KnownAnswers() + "/" + run.name;
  const auto config = ReadConfig(folder);
  ASSERT_OK(config);
  DecoderOptions decoder = {.dtype = DType::kFloat32,
                            .samples = SmallTraining::kSamples,
                            .positions = SmallTraining::kPositions,
                            .recompute = run.recompute};
  if (run.frozen) {
    decoder.trainable = [](const std::string& name) { return absl::StrContains(name, "mlp"); };
  }
  auto model = Decoder::Create(*config, decoder, *self.context);
  ASSERT_OK(model);
  zero::ZeroOptions options;
  options.stage = run.stage;
  options.dtype = DType::kFloat32;
  options.optimizer.groups = {{.lr = 0.01}};
  auto zero = zero::ZeroOptimizer::Create((*model)->spec(), options, *self.communicator,
                                          *self.context, *self.stream);
  ASSERT_OK(zero);
  ASSERT_OK(LoadWeights(folder, **model, **zero, *self.communicator));

  SmallTraining training(self, config->vocabulary);
  for (int step = 0; step < kSteps; ++step) {
    const auto loss = training.Step(step, **model, **zero);
    ASSERT_OK(loss);
    losses.push_back(*loss);
  }
}

std::vector<double> LossesOf(const Run& run) {
  std::vector<double> losses[2];
  device::RaceChecker checker;
  collectives::OnThreads({.size = 2, .race_checker = &checker},
                         [&](collectives::Rank& self) { Train(self, run, losses[self.rank]); });
  for (const device::Race& race : checker.reports()) ADD_FAILURE() << race.message;
  EXPECT_EQ(losses[0].size(), static_cast<size_t>(kSteps));
  losses[0].insert(losses[0].end(), losses[1].begin(), losses[1].end());
  return losses[0];
}

class TrainingTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, TrainingTest,
                         ::testing::Values("llama_grouped", "llama_tied", "gpt2"));

TEST_P(TrainingTest, LearnsTheSameInEveryStageAndWithRecomputation) {
  const std::vector<double> losses = LossesOf({GetParam(), 0});
  EXPECT_LT(losses[kSteps - 1], 0.8 * losses[0]);
  EXPECT_EQ(LossesOf({GetParam(), 1}), losses);
  EXPECT_EQ(LossesOf({GetParam(), 3}), losses);
  EXPECT_EQ(LossesOf({GetParam(), 2, true}), losses);
}

TEST_P(TrainingTest, LearnsWithMostWeightsFrozen) {
  const std::vector<double> losses = LossesOf({GetParam(), 0, false, true});
  EXPECT_LT(losses[kSteps - 1], losses[0]);
  EXPECT_EQ(LossesOf({GetParam(), 3, false, true}), losses);
}

TEST(TrainingTest, AWrongFileIsAnErrorOfAllRanks) {
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& self) {
    const auto config = ReadConfig(KnownAnswers() + "/llama");
    ASSERT_OK(config);
    auto model = Decoder::Create(*config, {.dtype = DType::kFloat32}, *self.context);
    ASSERT_OK(model);
    zero::ZeroOptions options;
    options.dtype = DType::kFloat32;
    auto zero = zero::ZeroOptimizer::Create((*model)->spec(), options, *self.communicator,
                                            *self.context, *self.stream);
    ASSERT_OK(zero);
    EXPECT_THAT(LoadWeights(KnownAnswers() + "/gpt2", **model, **zero, *self.communicator),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("are missing")));
  });
}

}  // namespace
}  // namespace brigade::models
