// Checkpoints of grids whose groups have different parameters, the stages of a pipeline: the same
// bytes as of one group that has all, and any grid loads any.

#include <atomic>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/export.h"
#include "brigade/checkpoint/verify.h"
#include "brigade/checkpoint/weights.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/staged_toy.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::StatusIs;
using testing::CrashFileSystem;
using testing::ExpectSame;
using testing::FilesOf;
using testing::StagedState;
using testing::ToString;
using testing::ToyGrid;
using testing::Train;

constexpr int kSteps = 3;

// One, two and three replicas; what groups have whole, and what is cut.
std::vector<ToyGrid> Grids() {
  return {{.shards = 1},
          {.data = 3, .shards = 1},
          {.data = 2, .stages = 2, .shards = 1},
          {.stages = 3, .shards = 1},
          {.tensor = 1, .data = 2},
          {.tensor = 2, .data = 2},
          {.tensor = 1, .stages = 2, .interleaved = true},
          {.tensor = 2, .stages = 2},
          {.tensor = 2, .data = 2, .stages = 2, .interleaved = true},
          {.tensor = 2, .data = 2, .stages = 3}};
}

// By turns.
zero::Home HomeOf(size_t turn) {
  static const std::vector<zero::Home>& homes = *new std::vector<zero::Home>(zero::Homes());
  return homes[turn % homes.size()];
}

// After some steps of one group that has everything, and after twice as many.
struct Whole {
  Whole() {
    const ToyGrid grid = {.data = 2, .shards = 1};
    state = Train({.grid = grid, .last = kSteps, .to = &disk});
    later = Train({.grid = grid, .last = 2 * kSteps, .to = &later_disk});
  }
  StagedState state, later;
  CrashFileSystem disk, later_disk;
};
Whole& OfWhole() {
  static Whole& whole = *new Whole;
  return whole;
}

// Without printing them.
void ExpectSameFiles(const CrashFileSystem& a, const CrashFileSystem& b, int64_t step) {
  const auto files = FilesOf(a, step), others = FilesOf(b, step);
  ASSERT_FALSE(files.empty());
  EXPECT_EQ(files.size(), others.size());
  for (const auto& [path, bytes] : files) {
    ASSERT_EQ(others.count(path), 1u) << path;
    EXPECT_TRUE(others.at(path) == bytes) << path;
  }
}

// As many replicas, so that sums have the same number of terms.
TEST(StagesTest, TrainingsThatAnyGridBeginsAndAnyGoesOnWithAreOne) {
  size_t turn = 0;
  std::vector<ToyGrid> grids = Grids();
  for (ToyGrid& grid : grids) grid.data = 2;
  for (size_t g = 0; g < grids.size(); ++g) {
    const ToyGrid &first = grids[g], &then = grids[(g + 4) % grids.size()];
    const zero::Home from = HomeOf(++turn), to = HomeOf(turn + 7);
    SCOPED_TRACE(absl::StrCat(ToString(first), " ", ToString(from), " to ", ToString(then), " ",
                              ToString(to)));
    CrashFileSystem disk, later;
    ExpectSame(Train({.grid = first,
                      .stage = from.stage,
                      .offload = from.offload,
                      .last = kSteps,
                      .to = &disk}),
               OfWhole().state);
    ExpectSameFiles(disk, OfWhole().disk, kSteps);
    ExpectSame(Train({.grid = then,
                      .stage = to.stage,
                      .offload = to.offload,
                      .first = kSteps,
                      .last = 2 * kSteps,
                      .from = &disk,
                      .to = &later}),
               OfWhole().later);
    ExpectSameFiles(later, OfWhole().later_disk, 2 * kSteps);
  }
}

// From the whole, in files of each rank's own; and from there to another grid, which saves it again
// in place: the first bytes.
class StagesPairTest : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {};
// "turn_3_from_4_to_7": each grid saves and loads in every turn.
std::string NameOf(const ::testing::TestParamInfo<std::tuple<size_t, size_t>>& info) {
  const auto [from, to] = info.param;
  return absl::StrCat("turn_", (from + to) % 4, "_from_", from, "_to_", to);
}
INSTANTIATE_TEST_SUITE_P(All, StagesPairTest,
                         ::testing::Combine(::testing::Range(size_t{0}, Grids().size()),
                                            ::testing::Range(size_t{0}, Grids().size())),
                         NameOf);

TEST_P(StagesPairTest, OneLoadsWhatTheOtherHasSaved) {
  const auto [first, second] = GetParam();
  const ToyGrid saves = Grids()[first], loads = Grids()[second];
  const size_t turn = first * Grids().size() + second;
  const zero::Home from = HomeOf(turn), to = HomeOf(3 * turn + 1);
  SCOPED_TRACE(absl::StrCat(ToString(saves), " ", ToString(from), " to ", ToString(loads), " ",
                            ToString(to)));
  CrashFileSystem pieces, again;
  ExpectSame(Train({.grid = saves,
                    .stage = from.stage,
                    .offload = from.offload,
                    .first = kSteps,
                    .last = kSteps,
                    .from = &OfWhole().disk,
                    .to = &pieces,
                    .mode = WriteMode::kPieceFiles}),
             OfWhole().state);
  ExpectSame(Train({.grid = loads,
                    .stage = to.stage,
                    .offload = to.offload,
                    .first = kSteps,
                    .last = kSteps,
                    .from = &pieces,
                    .to = &again}),
             OfWhole().state);
  ExpectSameFiles(again, OfWhole().disk, kSteps);
}

TEST(StagesTest, StepsGoOnWhileTheyAreSaved) {
  for (const WriteMode mode : {WriteMode::kInPlace, WriteMode::kPieceFiles}) {
    CrashFileSystem disk;
    ExpectSame(Train({.grid = {.tensor = 2, .data = 2, .stages = 2},
                      .stage = 1,
                      .last = 2 * kSteps,
                      .to = &disk,
                      .mode = mode,
                      .beside = kSteps}),
               OfWhole().later);
    ExpectSame(Train({.grid = {.shards = 1}, .first = kSteps, .last = kSteps, .from = &disk}),
               OfWhole().state);
  }
}

constexpr ToyGrid kMost = {.tensor = 2, .data = 2, .stages = 3};

void SaveInPieces(CrashFileSystem& disk) {
  Train({.grid = kMost,
         .stage = 2,
         .first = kSteps,
         .last = kSteps,
         .from = &OfWhole().disk,
         .to = &disk,
         .mode = WriteMode::kPieceFiles});
}

TEST(StagesTest, ToolsTakeThemAsAllOthers) {
  CrashFileSystem pieces;
  SaveInPieces(pieces);
  const std::string folder = CheckpointPath(testing::kRoot, kSteps);
  const auto verified = Verify(folder, {}, pieces);
  ASSERT_OK(verified);
  EXPECT_THAT(verified->damages, ::testing::IsEmpty());
  const auto whole = Verify(folder, {}, OfWhole().disk);
  ASSERT_OK(whole);
  EXPECT_EQ(verified->tensors, whole->tensors);

  ASSERT_OK(ExportParameters(folder, "/of_pieces", {}, pieces));
  ASSERT_OK(ExportParameters(folder, "/of_whole", {}, OfWhole().disk));
  EXPECT_TRUE(pieces.All().at("/of_pieces") == OfWhole().disk.All().at("/of_whole"));
  CrashFileSystem ordinary;
  ASSERT_OK(ExportFolder(folder, "/ordinary", kReadChunkBytes, pieces));
  for (const auto& [path, bytes] : FilesOf(OfWhole().disk, kSteps)) {
    const std::string copy = absl::StrCat("/ordinary", path.substr(folder.size()));
    EXPECT_TRUE(pieces.All().at(copy) == bytes) << copy;
  }
}

TEST(StagesTest, WeightsOfTheWholeModelGoToEachStage) {
  for (const ToyGrid& grid : Grids()) {
    SCOPED_TRACE(ToString(grid));
    StagedState loaded;
    collectives::OnThreads({.size = grid.ranks()}, [&](collectives::Rank& self) {
      const testing::StagedRank rank = CreateStaged(
          self, grid, testing::ToyOptions(self.size % 2 == 0 ? 1 : 3), SpecOf(grid, self.rank));
      ASSERT_OK(LoadWeights(CheckpointPath(testing::kRoot, kSteps), *rank.zero, *self.communicator,
                            {.chunk_bytes = 100}, OfWhole().disk, rank.part));
      AddStateOf(rank, loaded);
      self.AwaitOthers();
    });
    EXPECT_EQ(loaded.arrays[0], OfWhole().state.arrays[0]);
  }
}

// It gets the numbers of the group, and elements that the group has.
TEST(StagesTest, WeightsThatAreMissingAreAskedOfTheGroupsThatHaveThem) {
  const auto elsewhere = [](const std::string& name) {
    return name == "tokens" ? "elsewhere" : name;
  };
  std::atomic<int> asked = 0;
  StagedState loaded;
  collectives::OnThreads({.size = kMost.ranks()}, [&](collectives::Rank& self) {
    const testing::StagedRank rank =
        CreateStaged(self, kMost, testing::ToyOptions(1), SpecOf(kMost, self.rank));
    const std::string folder = CheckpointPath(testing::kRoot, kSteps);
    LoadWeightsOptions options = {.name_in_files = elsewhere, .allow_unexpected = true};
    EXPECT_THAT(
        LoadWeights(folder, *rank.zero, *self.communicator, options, OfWhole().disk, rank.part),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 ::testing::HasSubstr("1 parameters are missing: \"elsewhere\"")));
    options.initialize_missing = [&](int parameter, absl::Span<float> values) {
      ++asked;
      EXPECT_EQ(rank.zero->plan().parameter(parameter).spec.name, "tokens");
      EXPECT_EQ(values.size(), 16u * 37u / 2);
      for (float& value : values) value = 3;
      return absl::OkStatus();
    };
    ASSERT_OK(
        LoadWeights(folder, *rank.zero, *self.communicator, options, OfWhole().disk, rank.part));
    AddStateOf(rank, loaded);
    self.AwaitOthers();
  });
  // By the first rank of each of the groups of the first and the last stage.
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(loaded.arrays[0][0], std::vector<float>(16 * 37, 3));
  EXPECT_EQ(loaded.arrays[0][1], OfWhole().state.arrays[0][1]);
}

}  // namespace
}  // namespace brigade::checkpoint
