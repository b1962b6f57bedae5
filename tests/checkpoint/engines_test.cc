// Saves and loads over every engine, of every kind of model.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using collectives::Rank;
using precision::DType;
using testing::CrashFileSystem;
using testing::kRoot;
using testing::ToRoot;
using testing::ToyOptions;
using testing::TrainingFields;
using zero::Capture;
using zero::CapturedState;
using zero::ModelSpec;
using zero::ZeroOptions;

struct Case {
  const char* name;
  ModelSpec model;
  ZeroOptions options;
  // Of a state of this kind.
  int arrays;
};

ZeroOptions WithDtype(DType dtype) {
  ZeroOptions options = ToyOptions(1);
  if (dtype != DType::kFloat16) options.loss_scaler = {};
  options.dtype = dtype;
  return options;
}

ZeroOptions Sgd(double momentum) {
  ZeroOptions options = WithDtype(DType::kBFloat16);
  options.optimizer.kind = optim::OptimizerKind::kSgd;
  options.optimizer.groups[0].momentum = momentum;
  return options;
}

ZeroOptions Lion() {
  ZeroOptions options = WithDtype(DType::kBFloat16);
  options.optimizer.kind = optim::OptimizerKind::kLion;
  return options;
}

ZeroOptions AdamW8() {
  ZeroOptions options = WithDtype(DType::kBFloat16);
  options.optimizer.kind = optim::OptimizerKind::kAdamW8;
  options.optimizer.coded.min_elements = 500;
  return options;
}

ZeroOptions Muon() {
  ZeroOptions options = WithDtype(DType::kBFloat16);
  options.optimizer.kind = optim::OptimizerKind::kMuon;
  options.optimizer.groups[0].momentum = 0.9;
  return options;
}

ZeroOptions Adafactor() {
  ZeroOptions options = WithDtype(DType::kBFloat16);
  options.optimizer.kind = optim::OptimizerKind::kAdafactor;
  options.optimizer.groups[0].momentum = 0.9;
  return options;
}

std::vector<Case> Cases() {
  ModelSpec mixed = zero::ToyModel();
  mixed[1].parameters[2].dtype = DType::kFloat16;
  mixed[2].parameters[0].dtype = DType::kFloat32;
  mixed[2].parameters[0].shape = {50, 30};
  ModelSpec frozen = zero::ToyModel();
  for (zero::UnitSpec& unit : frozen) {
    for (zero::ParameterSpec& spec : unit.parameters) spec.trainable = false;
  }
  const ModelSpec toy = zero::ToyModel();
  return {{"fp16", toy, WithDtype(DType::kFloat16), 3},
          {"bf16", toy, WithDtype(DType::kBFloat16), 3},
          {"fp32", toy, WithDtype(DType::kFloat32), 3},
          {"types of their own", mixed, WithDtype(DType::kBFloat16), 3},
          {"SGD", toy, Sgd(0), 1},
          {"SGD with momentum", toy, Sgd(0.5), 2},
          {"Lion", toy, Lion(), 2},
          {"AdamW with codes", toy, AdamW8(), 5},
          {"Muon", zero::ToyMatrices(), Muon(), 3},
          {"Adafactor", zero::ToyMatrices(), Adafactor(), 3},
          {"frozen", frozen, WithDtype(DType::kBFloat16), 3},
          {"empty parameters", {{"a", {{"a.w", 0}, {"a.v", 0}}}}, WithDtype(DType::kBFloat16), 3},
          {"no parameters", {{"a", {}}}, WithDtype(DType::kBFloat16), 3}};
}

collectives::CreateEngineFn EmulatedNcclEngines(const collectives::RanksOptions& options) {
  emulator::EmulatedNccl::Reset();
  return collectives::NcclEngines(options);
}

struct EngineCase {
  const char* name;
  collectives::CreateEngineFn (*engines)(const collectives::RanksOptions& options);
};

// Trains four steps, with a save after the second one and while the others run; and goes on from
// it. What is in the folder.
std::map<std::string, std::string> SaveAndLoad(const Case& each, const EngineCase& engine,
                                               WriteMode mode, int ranks) {
  CrashFileSystem disk;
  const collectives::RanksOptions options = {.size = ranks};
  collectives::OnRanks(options, engine.engines(options), [&](Rank& self) {
    auto zero = CreateZero(each.model, each.options, self);
    ASSERT_OK(zero);
    ASSERT_OK(InitializeToy(**zero));
    EXPECT_EQ((*zero)->state_arrays(), each.arrays);
    zero::ToyTrainer trainer(**zero, self);
    while (trainer.step < 2) ASSERT_OK(trainer.Step());
    const CapturedState two = Capture(**zero, self).value();
    auto saver = Saver::Create(ToRoot(mode), **zero, *self.communicator, *self.context, disk);
    ASSERT_OK(saver);
    ASSERT_OK((*saver)->Begin(TrainingFields()));
    while (trainer.step < 4) ASSERT_OK(trainer.Step());
    const auto report = (*saver)->Wait();
    ASSERT_OK(report);
    EXPECT_OK(report->older_removed);
    const CapturedState four = Capture(**zero, self).value();
    EXPECT_EQ(four.step.iteration, 4);

    auto resumed = CreateZero(each.model, each.options, self);
    ASSERT_OK(resumed);
    const auto latest = FindLatest(kRoot, *self.communicator, 1000, disk);
    ASSERT_OK(latest);
    ASSERT_EQ(*latest, 2);
    ASSERT_OK(
        Load(CheckpointPath(kRoot, 2), TrainingFields(), **resumed, *self.communicator, {}, disk));
    EXPECT_EQ(Capture(**resumed, self).value(), two);
    zero::ToyTrainer goes_on(**resumed, self);
    for (goes_on.step = 2; goes_on.step < 4;) ASSERT_OK(goes_on.Step());
    EXPECT_EQ(Capture(**resumed, self).value(), four);
    ASSERT_OK(self.communicator->Synchronize(*self.stream));
    self.AwaitOthers();
  });
  EXPECT_EQ(disk.open_files(), 0);
  return testing::FilesOf(disk, 2);
}

class EnginesTest : public ::testing::TestWithParam<EngineCase> {};

TEST_P(EnginesTest, EveryModelComesBackAndItsFolderIsTheSame) {
  for (const Case& each : Cases()) {
    for (const WriteMode mode : {WriteMode::kInPlace, WriteMode::kPieceFiles}) {
      SCOPED_TRACE(absl::StrCat(each.name, mode == WriteMode::kInPlace ? "" : ", piece files"));
      const auto wanted = SaveAndLoad(each, {"threads", collectives::ThreadEngines}, mode, 3);
      EXPECT_FALSE(wanted.empty());
      EXPECT_EQ(SaveAndLoad(each, GetParam(), mode, 3), wanted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, EnginesTest,
                         ::testing::Values(EngineCase{"threads", collectives::ThreadEngines},
                                           EngineCase{"gloo", collectives::testing::GlooEngines},
                                           EngineCase{"nccl", EmulatedNcclEngines}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace brigade::checkpoint
