// Checkpoints of grids whose groups have different parameters, the stages of a pipeline: the same
// bytes as of one group that has all, and any grid loads any.

#include <string>
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

// From the whole, in files of each rank's own; and from there to every grid, which saves it again
// in place: the first bytes.
TEST(StagesTest, AnyGridLoadsWhatAnyHasSaved) {
  size_t turn = 0;
  for (const ToyGrid& saves : Grids()) {
    CrashFileSystem pieces;
    const zero::Home from = HomeOf(++turn);
    ExpectSame(Train({.grid = saves,
                      .stage = from.stage,
                      .offload = from.offload,
                      .first = kSteps,
                      .last = kSteps,
                      .from = &OfWhole().disk,
                      .to = &pieces,
                      .mode = WriteMode::kPieceFiles}),
               OfWhole().state);
    for (const ToyGrid& loads : Grids()) {
      const zero::Home to = HomeOf(++turn);
      SCOPED_TRACE(absl::StrCat(ToString(saves), " ", ToString(from), " to ", ToString(loads), " ",
                                ToString(to)));
      CrashFileSystem again;
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
  }
}

}  // namespace
}  // namespace brigade::checkpoint
