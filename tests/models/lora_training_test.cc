// Adapters by a ZeroOptimizer on two ranks: the same losses in every stage, a base that keeps its
// bits, and a start from saved adapters.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/models/adapter_files.h"
#include "brigade/models/weights.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/models/lab.h"
#include "brigade/tests/models/small_training.h"
#include "brigade/zero/zero_optimizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using precision::DType;

constexpr int kSteps = 8;

struct TrainingRun {
  std::string name;
  int stage = 0;
  BaseFormat base = BaseFormat::kAsModel;
  double dropout = 0;
  bool recompute = false;
  DType dtype = DType::kFloat32;
  // Folders of adapters to begin with, and to write at the end.
  std::string from = {};
  std::string to = {};
  // Where a checkpoint is saved after half of the steps, or from where the other half goes on.
  std::string save = {};
  std::string resume = {};
};

void Train(collectives::Rank& self, const TrainingRun& run, std::vector<double>& losses) {
  const std::string folder = KnownAnswers() + "/" + run.name;
  const auto config = ReadConfig(folder);
  ASSERT_OK(config);
  auto model = Decoder::Create(*config,
                               {.dtype = run.dtype,
                                .samples = SmallTraining::kSamples,
                                .positions = SmallTraining::kPositions,
                                .recompute = run.recompute,
                                .lora = LoraOptions{.rank = 4,
                                                    .alpha = 8,
                                                    .dropout = run.dropout,
                                                    .targets = {"all-linear"},
                                                    .base = run.base}},
                               *self.context);
  ASSERT_OK(model);
  zero::ZeroOptions options;
  options.stage = run.stage;
  options.dtype = run.dtype;
  options.optimizer.groups = {{.lr = 0.03}};
  auto zero = zero::ZeroOptimizer::Create((*model)->spec(), options, *self.communicator,
                                          *self.context, *self.stream);
  ASSERT_OK(zero);
  int first = 0;
  if (!run.resume.empty()) {
    first = kSteps / 2;
    ASSERT_OK(checkpoint::Load(checkpoint::CheckpointPath(run.resume, first), {}, **zero,
                               *self.communicator));
  } else {
    ASSERT_OK(LoadWeights(folder, **model, **zero, *self.communicator, device::SystemCalls::Real(),
                          {.seed = 5, .folder = run.from}));
  }
  const auto base = [&] {
    std::vector<std::vector<float>> all;
    EXPECT_OK((*zero)->ExportParameters([&](int parameter, absl::Span<const float> values) {
      if ((*model)->roles()[static_cast<size_t>(parameter)].is_base()) {
        all.emplace_back(values.begin(), values.end());
      }
      return absl::OkStatus();
    }));
    return all;
  };
  const auto bits = [](const std::vector<std::vector<float>>& all) {
    std::string bytes;
    for (const auto& values : all) {
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    return bytes;
  };
  const std::string before = bits(base());
  SmallTraining training(self, config->vocabulary);
  for (int step = first; step < kSteps; ++step) {
    if (!run.save.empty() && step == kSteps / 2) {
      auto saver =
          checkpoint::Saver::Create({.root = run.save}, **zero, *self.communicator, *self.context);
      ASSERT_OK(saver);
      ASSERT_OK((*saver)->Begin({}));
      ASSERT_OK((*saver)->Wait());
    }
    const auto loss = training.Step(step, **model, **zero);
    ASSERT_OK(loss);
    losses.push_back(*loss);
  }
  EXPECT_EQ(bits(base()), before);
  if (run.to.empty()) return;
  ASSERT_OK(SaveAdapter(run.to, **model, **zero, *self.communicator));
}

std::vector<double> LossesOf(const TrainingRun& run) {
  std::vector<double> losses[2];
  device::RaceChecker checker;
  collectives::OnThreads({.size = 2, .race_checker = &checker},
                         [&](collectives::Rank& self) { Train(self, run, losses[self.rank]); });
  for (const device::Race& race : checker.reports()) ADD_FAILURE() << race.message;
  EXPECT_EQ(losses[0].size(), static_cast<size_t>(run.resume.empty() ? kSteps : kSteps / 2));
  losses[0].insert(losses[0].end(), losses[1].begin(), losses[1].end());
  return losses[0];
}

class LoraTrainingTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, LoraTrainingTest, ::testing::Values("llama_grouped", "gpt2"));

TEST_P(LoraTrainingTest, LearnsTheSameInEveryStage) {
  for (const BaseFormat base : {BaseFormat::kAsModel, BaseFormat::kInt8Blocks}) {
    const std::vector<double> losses = LossesOf({GetParam(), 0, base, 0.1});
    EXPECT_LT(losses[kSteps - 1], 0.8 * losses[0]);
    EXPECT_EQ(LossesOf({GetParam(), 2, base, 0.1, true}), losses);
    EXPECT_EQ(LossesOf({GetParam(), 3, base, 0.1}), losses);
  }
}

TEST_P(LoraTrainingTest, LearnsWithABaseIn16Bits) {
  const TrainingRun run = {GetParam(), 0, BaseFormat::kInt8Blocks, 0, false, DType::kBFloat16};
  TrainingRun sharded = run;
  sharded.stage = 3;
  const std::vector<double> losses = LossesOf(run);
  EXPECT_LT(losses[kSteps - 1], 0.9 * losses[0]);
  EXPECT_EQ(LossesOf(sharded), losses);
}

// The base as int8 is near the base, and not it.
TEST_P(LoraTrainingTest, Int8BlocksAreNearTheBase) {
  const double whole = LossesOf({GetParam()})[0];
  const double coded = LossesOf({GetParam(), 0, BaseFormat::kInt8Blocks})[0];
  EXPECT_NEAR(coded, whole, 0.05 * whole);
  EXPECT_NE(coded, whole);
}

// Codes of the base, too, are read as they were.
TEST_P(LoraTrainingTest, ResumesWithTheBitsOfTheWholeRun) {
  const std::string root = absl::StrCat(::testing::TempDir(), "/checkpoints-", GetParam());
  std::filesystem::remove_all(root);
  TrainingRun run = {GetParam(), 3, BaseFormat::kInt8Blocks, 0.1};
  run.save = root;
  const std::vector<double> whole = LossesOf(run);
  TrainingRun resumed = {GetParam(), 1, BaseFormat::kInt8Blocks, 0.1};
  resumed.resume = root;
  const std::vector<double> half = LossesOf(resumed);
  ASSERT_EQ(half.size(), static_cast<size_t>(kSteps));
  for (int rank = 0; rank < 2; ++rank) {
    for (int step = 0; step < kSteps / 2; ++step) {
      EXPECT_EQ(half[static_cast<size_t>(rank * kSteps / 2 + step)],
                whole[static_cast<size_t>(rank * kSteps + kSteps / 2 + step)]);
    }
  }
}

TEST_P(LoraTrainingTest, GoesOnFromSavedAdapters) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/adapters-", GetParam());
  std::filesystem::remove_all(folder);
  const std::vector<double> first = LossesOf({.name = GetParam(), .stage = 3, .to = folder});
  const std::vector<double> then = LossesOf({.name = GetParam(), .stage = 0, .from = folder});
  EXPECT_LT(then[0], first[kSteps - 1]);
  const auto config = ReadAdapterConfig(folder);
  ASSERT_OK(config);
  EXPECT_EQ(config->rank, 4);
}

}  // namespace
}  // namespace brigade::models
