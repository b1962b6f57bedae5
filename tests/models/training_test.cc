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
#include "brigade/zero/zero_optimizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 2, kPositions = 8, kRows = kSamples * kPositions;
constexpr int kSteps = 6;

struct Run {
  std::string name;
  int stage = 0;
  bool recompute = false;
  bool frozen = false;
};

// Each id is followed by one more; one label is ignored.
void FillBatch(int rank, int64_t vocabulary, absl::Span<int32_t> ids, absl::Span<int32_t> labels) {
  for (int64_t r = 0; r < kRows; ++r) {
    const auto i = static_cast<size_t>(r);
    ids[i] = static_cast<int32_t>((r % kPositions + 5 * (r / kPositions) + 9 * rank) % vocabulary);
    labels[i] = r == 3 ? kIgnored : static_cast<int32_t>((ids[i] + 1) % vocabulary);
  }
}

void Train(collectives::Rank& self, const Run& run, std::vector<double>& losses) {
  const std::string folder = KnownAnswers() + "/" + run.name;
  const auto config = ReadConfig(folder);
  ASSERT_OK(config);
  DecoderOptions decoder = {.dtype = DType::kFloat32,
                            .samples = kSamples,
                            .positions = kPositions,
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

  const auto host = [&](int64_t bytes) {
    return self.context->AllocateHost(bytes, device::Purpose::kScratch).value();
  };
  const device::Buffer ids = host(kRows * 4), labels = host(kRows * 4), one = host(4);
  const device::Buffer seed = host(4), of_rows = host(kRows * 4);
  FillBatch(self.rank, config->vocabulary, ids.as<int32_t>(), labels.as<int32_t>());
  // The mean over the labels that count.
  one.as<float>()[0] = 1.0f / static_cast<float>(kRows - 1);
  const Batch batch = {ids.data(), labels.data(), kSamples, kPositions};
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_OK(Forward(**model, batch, of_rows.data(), **zero, *self.stream));
    ASSERT_OK(
        (*zero)->ScaleLoss(one.as<float>().data(), seed.as<float>().data(), 1, DType::kFloat32));
    ASSERT_OK(Backward(**model, batch, seed.as<float>().data(), **zero, *self.stream));
    ASSERT_OK((*zero)->FinishBackward());
    ASSERT_OK((*zero)->Step());
    ASSERT_OK(self.stream->Synchronize());
    double sum = 0;
    for (const float loss : of_rows.as<float>()) sum += static_cast<double>(loss);
    losses.push_back(sum / static_cast<double>(kRows - 1));
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
