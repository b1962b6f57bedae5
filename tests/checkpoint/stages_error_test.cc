// What saving and loading refuse of ranks that have other parts of a model than they say, or other
// models; and what is damaged of a checkpoint of stages. An error on all ranks.

#include <fcntl.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/checkpoint/weights.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/staged_toy.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using ::testing::AllOf;
using testing::CrashFileSystem;
using ::testing::HasSubstr;
using testing::kRoot;
using testing::SpecOf;
using testing::StagedRank;
using testing::ToRoot;
using testing::ToyGrid;
using testing::ToyOptions;
using testing::Train;
using testing::TrainingFields;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int kSteps = 2;

// Of two stages, of one rank each and of two tensor ranks each. Rank 1, or ranks 2 and 3, are the
// last stage.
constexpr ToyGrid kTwo = {.stages = 2, .shards = 1};
constexpr ToyGrid kFour = {.tensor = 2, .stages = 2};

zero::ParameterSpec& ParameterOf(zero::ModelSpec& model, const std::string& name) {
  for (zero::UnitSpec& unit : model) {
    for (zero::ParameterSpec& spec : unit.parameters) {
      if (spec.name == name) return spec;
    }
  }
  ADD_FAILURE() << name;
  return model[0].parameters[0];
}

// What is wrong on a rank.
using Wrong = std::function<void(int rank, zero::ModelSpec& own, ModelPart& part)>;

// Saving, loading and loading weights are refused on all ranks with this in the error, before
// anything is read or written. `alone`: the rank that finds it, by whose number the others name it.
void ExpectRefused(const ToyGrid& grid, const Wrong& wrong, const std::string& why,
                   int alone = -1) {
  SCOPED_TRACE(why);
  CrashFileSystem disk;
  OnThreads({.size = grid.ranks()}, [&](Rank& self) {
    zero::ModelSpec own = SpecOf(grid, self.rank);
    ModelPart part = PartOf(grid, self.rank);
    wrong(self.rank, own, part);
    const StagedRank rank = CreateStaged(self, grid, ToyOptions(1), own);
    collectives::Communicator& all = *self.communicator;
    const bool is_told = alone >= 0 && self.rank != alone;
    const auto refused = StatusIs(
        kInvalid, AllOf(HasSubstr(why),
                        ::testing::StartsWith(is_told ? absl::StrCat("rank ", alone, ": ") : "")));
    EXPECT_THAT(Saver::Create(ToRoot(), *rank.zero, all, *self.context, disk, part).status(),
                refused)
        << self.rank;
    EXPECT_THAT(Load(kRoot, TrainingFields(), *rank.zero, all, {}, disk, part).status(), refused)
        << self.rank;
    EXPECT_THAT(LoadWeights(kRoot, *rank.zero, all, {}, disk, part), refused) << self.rank;
    self.AwaitOthers();
  });
  EXPECT_THAT(disk.All(), ::testing::IsEmpty());
}

TEST(StagesErrorTest, AParameterThatNoGroupSavesIsNamed) {
  ExpectRefused(
      kTwo, [](int, auto& own, auto&) { own[0].parameters[0].counted = false; },
      "no rank saves \"tokens\": of those that are rank 0 of their groups none has it and counts "
      "it");
  const auto without = [](int rank, zero::ModelSpec& own, ModelPart&) {
    // "h.2.empty", which has no elements.
    if (rank / 2 == 1) own[0].parameters.pop_back();
  };
  ExpectRefused(kFour, without, "no rank saves \"h.2.empty\": ");
  ExpectRefused(
      kFour,
      [](int rank, auto& own, auto&) {
        if (rank == 1) ParameterOf(own, "h.1.out").counted = false;
      },
      "no rank saves \"h.1.out\" of tensor rank 1: ");
}

TEST(StagesErrorTest, OneThatTwoGroupsSaveIsNamed) {
  ExpectRefused(
      kTwo,
      [](int rank, auto& own, auto&) {
        if (rank == 1) ParameterOf(own, "tokens").counted = true;
      },
      "ranks 0 and 1 both save \"tokens\": ");
  ExpectRefused(
      kFour,
      [](int rank, auto& own, auto&) {
        if (rank == 3) ParameterOf(own, "tokens").counted = true;
      },
      "ranks 1 and 3 both save \"tokens\" of tensor rank 1: ");
  ExpectRefused(
      kFour, [](int, auto& own, auto&) { own[0].parameters.back().counted = true; },
      "ranks 0 and 1 both save \"positions\": ");
  // Two ranks that say that they are the same tensor rank.
  ExpectRefused(
      kFour, [](int, auto&, ModelPart& part) { part.shards.rank = 0; },
      "ranks 0 and 1 both save \"tokens\" of tensor rank 0: ");
}

TEST(StagesErrorTest, AParameterThatIsAnotherOneInTheModelIsNamed) {
  const auto on_last = [](const std::function<void(zero::ParameterSpec&)>& change) -> Wrong {
    return [change](int rank, zero::ModelSpec& own, ModelPart&) {
      if (rank == 1) change(ParameterOf(own, "norm"));
    };
  };
  ExpectRefused(kTwo, on_last([](auto& spec) {
                  spec.shape = {5, 13};
                }),
                "\"norm\" is [5, 13] float16, group 0 here, [65] float16, group 0 in the model", 1);
  ExpectRefused(kTwo, on_last([](auto& spec) { spec.size = 64, spec.shape = {}; }),
                "\"norm\" is [64] float16, group 0 here, [65] float16, group 0 in the model", 1);
  ExpectRefused(kTwo, on_last([](auto& spec) { spec.trainable = false; }),
                "\"norm\" is [65] float16, frozen here, [65] float16, group 0 in the model", 1);
  ExpectRefused(kTwo, on_last([](auto& spec) { spec.name = "norms"; }),
                "\"norms\" is no parameter of the model", 1);
  // In the model of all ranks.
  ExpectRefused(
      kTwo,
      [](int, auto&, ModelPart& part) {
        ParameterOf(part.model, "norm").dtype = precision::DType::kBFloat16;
      },
      "\"norm\" is [65] float16, group 0 here, [65] bfloat16, group 0 in the model", 1);
}

TEST(StagesErrorTest, TheFirstParameterOfWhichRanksHaveOtherModelsIsNamed) {
  ExpectRefused(
      kTwo,
      [](int rank, auto&, ModelPart& part) {
        // Which it has not.
        if (rank == 0) ParameterOf(part.model, "norm").trainable = false;
      },
      "ranks disagree: rank 0 has parameter 10 of the model, norm [65] float16, frozen; rank 1 has "
      "parameter 10 of the model, norm [65] float16, group 0");
  ExpectRefused(
      kTwo,
      [](int rank, auto&, ModelPart& part) {
        if (rank == 1) part.model[0].parameters.push_back({"more", 3});
      },
      "ranks disagree: rank 0 has 1 tensor shards on 1 ranks, and a model of 11 parameters; rank 1 "
      "has 1 tensor shards on 1 ranks, and a model of 12 parameters");
  ExpectRefused(
      kFour,
      [](int rank, auto&, ModelPart& part) {
        if (rank < 2) part.parameters[8].axis.reset();
      },
      "ranks disagree: rank 0 has parameter 8 of the model, h.3.out [45, 8] float16, group 0; rank "
      "2 has parameter 8 of the model, h.3.out [45, 8] float16, group 0, cut along axis 1 in 1 "
      "parts");
}

TEST(StagesErrorTest, APartThatDoesNotFitTheGroupsIsAnError) {
  ExpectRefused(
      kTwo, [](int, auto&, ModelPart& part) { part = {}; },
      "2 groups have parts of a model, and ModelPart says nothing of how its 6 parameters are cut");
  ExpectRefused(
      kFour, [](int, auto&, ModelPart& part) { part.model = {}; },
      "4 groups have parts of a model, by ModelPart they are 2");
  ExpectRefused(
      {.tensor = 2, .stages = 3}, [](int, auto&, ModelPart& part) { part.shards.ranks = 4; },
      "6 groups have parts of a model, by ModelPart they are a multiple of 4");
  ExpectRefused(
      kTwo, [](int, auto&, ModelPart& part) { part.shards.count = 4; },
      "ModelPart has 4 tensor shards, and says nothing of how parameters are cut");
  ExpectRefused(
      kFour, [](int, auto&, ModelPart& part) { part.parameters.pop_back(); },
      "the model has 11 parameters, ModelPart shards of 10");
  ExpectRefused(
      kFour,
      [](int, auto&, ModelPart& part) {
        part.parameters[10].shape = {5, 13};
      },
      "\"norm\" is [65] in the model, its shard one of [5, 13]");
  ExpectRefused(
      kFour,
      [](int rank, auto& own, auto&) {
        if (rank / 2 == 0) ParameterOf(own, "h.1.out").size = 8;
      },
      "\"h.1.out\" has 8 elements, by ModelPart 180");
  ExpectRefused(
      kTwo, [](int, auto&, ModelPart& part) { part.model[1].parameters[0].name = "tokens"; },
      "two parameters are called \"tokens\"");
}

TEST(StagesErrorTest, OneGroupCannotSaveOrLoadAlone) {
  CrashFileSystem disk;
  OnThreads({.size = 2}, [&](Rank& self) {
    const StagedRank rank = CreateStaged(self, kTwo, ToyOptions(1), SpecOf(kTwo, self.rank));
    const auto refused = StatusIs(kInvalid, HasSubstr("1 ranks save or load it, of 2 groups of 1"));
    EXPECT_THAT(
        Saver::Create(ToRoot(), *rank.zero, *rank.group, *self.context, disk, rank.part).status(),
        refused);
    EXPECT_THAT(
        Load(kRoot, TrainingFields(), *rank.zero, *rank.group, {}, disk, rank.part).status(),
        refused);
    self.AwaitOthers();
  });
}

// As many ranks, but of two trainings: both are the first of their groups.
TEST(StagesErrorTest, RanksOfTwoTrainingsAreAnError) {
  CrashFileSystem disk;
  OnThreads({.size = 4}, [&](Rank& self) {
    auto training = self.communicator->Split(self.rank / 2, self.rank).value();
    auto mixed = self.communicator->Split(self.rank % 2, self.rank).value();
    auto zero = zero::ZeroOptimizer::Create(testing::StagedToy(), ToyOptions(1), *training,
                                            *self.context, *self.stream)
                    .value();
    const int rank = self.rank % 2;
    EXPECT_THAT(Saver::Create(ToRoot(), *zero, *mixed, *self.context, disk).status(),
                StatusIs(kInvalid, HasSubstr(absl::StrCat("rank 1 is rank ", rank,
                                                          " of its group, as ranks of 1 other "
                                                          "groups are, of 1 in all"))));
    self.AwaitOthers();
  });
}

std::string Folder() { return CheckpointPath(kRoot, kSteps); }

// What each rank gets from loading.
std::vector<absl::Status> Loaded(
    const ToyGrid& grid, CrashFileSystem& disk, const Wrong& wrong = [](int, auto&, auto&) {}) {
  std::vector<absl::Status> loaded(static_cast<size_t>(grid.ranks()));
  OnThreads({.size = grid.ranks()}, [&](Rank& self) {
    zero::ModelSpec own = SpecOf(grid, self.rank);
    ModelPart part = PartOf(grid, self.rank);
    wrong(self.rank, own, part);
    const StagedRank rank = CreateStaged(self, grid, ToyOptions(3), own);
    loaded[static_cast<size_t>(self.rank)] =
        Load(Folder(), TrainingFields(), *rank.zero, *self.communicator, {}, disk, part).status();
    self.AwaitOthers();
  });
  return loaded;
}

TEST(StagesErrorTest, ADamagedTensorIsNamedWhicheverStageHasIt) {
  for (const std::string name : {"tokens", "norm", "h.2.qkv"}) {
    CrashFileSystem disk;
    // With names of its tensors in the order of their bytes, and their values as they come.
    Train({.grid = kFour, .last = kSteps, .to = &disk});
    std::string file;
    int64_t at = 0;
    for (const auto& [path, bytes] : disk.All()) {
      const std::string quoted = absl::StrCat("\"", name, "\":{");
      if (!absl::StrContains(path, "/moment1-") || !absl::StrContains(bytes, quoted)) continue;
      file = path;
      const std::string offsets = "\"data_offsets\":[";
      const size_t begin = bytes.find(offsets, bytes.find(quoted)) + offsets.size();
      at = 4096 + std::stoll(bytes.substr(begin)) + 5;
    }
    ASSERT_NE(file, "");
    const int fd = disk.Open(file, O_RDWR, 0);
    char byte = 0;
    ASSERT_EQ(disk.ReadAt(fd, &byte, 1, at), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(disk.WriteAt(fd, &byte, 1, at), 1);
    ASSERT_EQ(disk.Close(fd), 0);
    EXPECT_THAT(Loaded({.tensor = 2, .stages = 3}, disk),
                ::testing::Each(
                    StatusIs(absl::StatusCode::kDataLoss,
                             HasSubstr(absl::StrCat(file, " is damaged: tensor \"", name, "\"")))));
  }
}

TEST(StagesErrorTest, APieceFileThatIsGoneIsNamedOnAllRanks) {
  CrashFileSystem disk;
  Train({.grid = kFour, .last = kSteps, .to = &disk, .mode = WriteMode::kPieceFiles});
  const std::string file = absl::StrCat(Folder(), "/pieces-00003-of-00004.bin");
  ASSERT_EQ(disk.Unlink(file), 0);
  EXPECT_THAT(Loaded({.stages = 2, .shards = 1}, disk),
              ::testing::Each(StatusIs(absl::StatusCode::kDataLoss, HasSubstr(file))));
}

// Two hosts with disks of their own, each with a stage, which finds what it has saved; but of what
// both have the last one finds nothing.
TEST(StagesErrorTest, WhatStagesShareIsOnTheDiskOfTheHostThatSavesIt) {
  for (const bool is_tied : {false, true}) {
    CrashFileSystem disks[2];
    OnThreads({.size = 2}, [&](Rank& self) {
      zero::ModelSpec own = SpecOf(kTwo, self.rank);
      if (!is_tied && self.rank == 1) own.back().parameters.pop_back();
      const auto create = [&] { return CreateStaged(self, kTwo, ToyOptions(1), own); };
      CrashFileSystem& disk = disks[self.rank];
      const StagedRank saves = create(), loads = create();
      ASSERT_OK(saves.zero->InitializeParameters(
          [](int, absl::Span<float>) { return absl::OkStatus(); }));
      auto saver = Saver::Create(ToRoot(WriteMode::kPieceFiles), *saves.zero, *self.communicator,
                                 *self.context, disk, saves.part);
      ASSERT_OK(saver);
      ASSERT_OK((*saver)->Begin(TrainingFields()));
      ASSERT_OK((*saver)->Wait());
      const absl::Status loaded = Load(CheckpointPath(kRoot, 0), TrainingFields(), *loads.zero,
                                       *self.communicator, {}, disk, loads.part)
                                      .status();
      if (is_tied) {
        EXPECT_THAT(loaded, StatusIs(absl::StatusCode::kDataLoss,
                                     HasSubstr("pieces-00001-of-00002.bin is not there")));
      } else {
        EXPECT_OK(loaded);
      }
      self.AwaitOthers();
    });
  }
}

TEST(StagesErrorTest, AnotherModelIsRefusedByTheNameThatDiffers) {
  CrashFileSystem disk;
  Train({.grid = kFour, .last = kSteps, .to = &disk});
  const auto another = [](int rank, zero::ModelSpec& own, ModelPart& part) {
    ParameterOf(part.model, "norm").shape = {5, 13};
    if (rank == 1) ParameterOf(own, "norm").shape = {5, 13};
  };
  EXPECT_THAT(Loaded(kTwo, disk, another),
              ::testing::Each(StatusIs(
                  kInvalid, AllOf(HasSubstr(Folder()), HasSubstr("norm"), HasSubstr("[65] float16"),
                                  HasSubstr("[5, 13] float16")))));
}

}  // namespace
}  // namespace brigade::checkpoint
