// What one training saves another one loads: in any stage, with any number of ranks, and the folder
// is the same.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/testing/tolerance.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using testing::CrashFileSystem;
using testing::FilesOf;
using testing::ToyRun;
using testing::Train;

constexpr int kMostRanks = 4;

TEST(RoundTripTest, ThreeAndThreeStepsAreSixInAnyStage) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    CrashFileSystem six;
    const auto wanted = Train({.stage = 0, .ranks = ranks, .last = 6, .to = &six});
    ASSERT_FALSE(wanted.empty());
    for (int from = 0; from < zero::kStages; ++from) {
      CrashFileSystem three;
      Train({.stage = from, .ranks = ranks, .last = 3, .to = &three});
      for (int to = 0; to < zero::kStages; ++to) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, stage ", from, " to ", to));
        CrashFileSystem resumed;
        EXPECT_EQ(Train({.stage = to,
                         .ranks = ranks,
                         .first = 3,
                         .last = 6,
                         .from = &three,
                         .to = &resumed}),
                  wanted);
        EXPECT_EQ(FilesOf(resumed, 6), FilesOf(six, 6));
      }
    }
  }
}

// Each place of the state saves for the next one.
TEST(RoundTripTest, ThreeAndThreeStepsAreSixWhereverTheStateIs) {
  constexpr int kRanks = 2;
  CrashFileSystem six;
  const auto wanted = Train({.stage = 0, .ranks = kRanks, .last = 6, .to = &six});
  const std::vector<zero::Home> homes = zero::Homes();
  for (size_t i = 0; i < homes.size(); ++i) {
    const zero::Home &from = homes[i], &to = homes[(i + 1) % homes.size()];
    SCOPED_TRACE(absl::StrCat(ToString(from), " to ", ToString(to)));
    CrashFileSystem three, resumed;
    Train({.stage = from.stage, .ranks = kRanks, .last = 3, .to = &three, .offload = from.offload});
    EXPECT_EQ(Train({.stage = to.stage,
                     .ranks = kRanks,
                     .first = 3,
                     .last = 6,
                     .from = &three,
                     .to = &resumed,
                     .offload = to.offload}),
              wanted);
    EXPECT_EQ(FilesOf(resumed, 6), FilesOf(six, 6));
  }
}

TEST(RoundTripTest, AnyStageAndWorldSizeLoadsAnyAndSavesTheSameBytes) {
  for (int saved_by = 1; saved_by <= kMostRanks; ++saved_by) {
    for (int from = 0; from < zero::kStages; ++from) {
      CrashFileSystem disk;
      const auto wanted = Train({.stage = from, .ranks = saved_by, .last = 3, .to = &disk});
      for (int loaded_by = 1; loaded_by <= kMostRanks; ++loaded_by) {
        for (int to = 0; to < zero::kStages; ++to) {
          SCOPED_TRACE(absl::StrCat("stage ", from, " of ", saved_by, " ranks to stage ", to,
                                    " of ", loaded_by));
          CrashFileSystem again;
          EXPECT_EQ(Train({.stage = to,
                           .ranks = loaded_by,
                           .first = 3,
                           .last = 3,
                           .from = &disk,
                           .to = &again}),
                    wanted);
          EXPECT_EQ(FilesOf(again, 3), FilesOf(disk, 3));
        }
      }
    }
  }
}

// Blocks of codes and whole matrices lie elsewhere on other ranks, and are the same.
TEST(RoundTripTest, CodesAndMatricesComeToOtherRanksAndBack) {
  for (const auto kind : {optim::OptimizerKind::kAdamW8, optim::OptimizerKind::kMuon,
                          optim::OptimizerKind::kAdafactor, optim::OptimizerKind::kLion}) {
    SCOPED_TRACE(static_cast<int>(kind));
    CrashFileSystem by_four, by_two, by_three, again;
    const auto wanted =
        Train({.stage = 2, .ranks = 4, .last = 3, .to = &by_four, .optimizer = kind});
    const auto load = [&](int stage, int ranks, CrashFileSystem& from, CrashFileSystem& to) {
      EXPECT_EQ(Train({.stage = stage,
                       .ranks = ranks,
                       .first = 3,
                       .last = 3,
                       .from = &from,
                       .to = &to,
                       .optimizer = kind}),
                wanted);
      EXPECT_EQ(FilesOf(to, 3), FilesOf(by_four, 3)) << ranks;
    };
    load(1, 2, by_four, by_two);
    load(3, 3, by_two, by_three);
    load(0, 4, by_three, again);
    // Four ranks go on from what three have saved as if they had not stopped.
    CrashFileSystem six, resumed;
    const auto six_steps =
        Train({.stage = 1, .ranks = 4, .last = 6, .to = &six, .optimizer = kind});
    EXPECT_EQ(Train({.stage = 3,
                     .ranks = 4,
                     .first = 3,
                     .last = 6,
                     .from = &by_three,
                     .to = &resumed,
                     .optimizer = kind}),
              six_steps);
    EXPECT_EQ(FilesOf(resumed, 6), FilesOf(six, 6));
  }
}

// Groups that have a whole state each save it once, and load what others have saved.
TEST(RoundTripTest, AnyGroupsLoadWhatAnyHaveSaved) {
  struct Groups {
    int ranks, shard_ranks, stage;
  };
  const Groups all[] = {{4, 2, 3}, {4, 1, 2}, {4, 4, 3}, {3, 0, 1},
                        {2, 1, 3}, {6, 3, 2}, {1, 0, 0}};
  for (const WriteMode mode : {WriteMode::kInPlace, WriteMode::kPieceFiles}) {
    for (const Groups& from : all) {
      CrashFileSystem disk;
      const auto wanted = Train({.stage = from.stage,
                                 .ranks = from.ranks,
                                 .last = 3,
                                 .to = &disk,
                                 .mode = mode,
                                 .shard_ranks = from.shard_ranks});
      ASSERT_FALSE(wanted.empty());
      // Saved in place all are alike, and so is what those save that load it.
      std::map<std::string, std::string> files;
      if (mode == WriteMode::kInPlace) files = FilesOf(disk, 3);
      for (const Groups& to : all) {
        SCOPED_TRACE(absl::StrCat("groups of ", from.shard_ranks, " of ", from.ranks,
                                  " ranks to groups of ", to.shard_ranks, " of ", to.ranks));
        CrashFileSystem again;
        EXPECT_EQ(Train({.stage = to.stage,
                         .ranks = to.ranks,
                         .first = 3,
                         .last = 3,
                         .from = &disk,
                         .to = &again,
                         .shard_ranks = to.shard_ranks}),
                  wanted);
        if (files.empty()) files = FilesOf(again, 3);
        EXPECT_EQ(FilesOf(again, 3), files);
      }
    }
  }
}

TEST(RoundTripTest, StepsWithGroupsGoOnWithTheSameBits) {
  CrashFileSystem six;
  const auto wanted = Train({.stage = 2, .ranks = 4, .last = 6, .to = &six, .shard_ranks = 2});
  CrashFileSystem three, resumed;
  Train({.stage = 3, .ranks = 4, .last = 3, .to = &three, .shard_ranks = 2});
  EXPECT_EQ(Train({.stage = 1,
                   .ranks = 4,
                   .first = 3,
                   .last = 6,
                   .from = &three,
                   .to = &resumed,
                   .shard_ranks = 2}),
            wanted);
  EXPECT_EQ(FilesOf(resumed, 6), FilesOf(six, 6));
}

// The numbers of a checkpoint: contents by file.
std::map<std::string, std::string> NumbersOf(const CrashFileSystem& disk, int64_t step) {
  std::map<std::string, std::string> numbers;
  for (const auto& [path, bytes] : FilesOf(disk, step)) {
    if (absl::EndsWith(path, ".safetensors")) numbers[path.substr(path.rfind('/'))] = bytes;
  }
  EXPECT_FALSE(numbers.empty());
  return numbers;
}

// Each as it was, but for as many roundings.
void ExpectTheSameButForRoundings(const std::map<std::string, std::string>& after,
                                  const std::map<std::string, std::string>& before, int roundings) {
  ASSERT_EQ(after.size(), before.size());
  int64_t rounded = 0, same = 0;
  for (const auto& [name, bytes] : before) {
    const auto found = after.find(name);
    ASSERT_TRUE(found != after.end()) << name;
    ASSERT_EQ(found->second.size(), bytes.size()) << name;
    for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
      float was, is;
      std::memcpy(&was, bytes.data() + at, sizeof(float));
      std::memcpy(&is, found->second.data() + at, sizeof(float));
      const bool equal = std::memcmp(&was, &is, sizeof(float)) == 0;
      ++(equal ? same : rounded);
      if (equal) continue;
      EXPECT_NEAR(is, was, brigade::testing::RoundingError<float>(roundings, std::fabs(was)))
          << name << ", byte " << at;
    }
  }
  EXPECT_EQ(rounded > 0, roundings > 0);
  EXPECT_GT(same, rounded);
}

// What exchanges have left out of steps before step `at`, when it is saved: any stage goes on with
// it as the run that has saved does.
void ExpectErrorsToGoOn(const ToyRun& of, int at) {
  constexpr int kRanks = 4, kSkipped = 4;
  const int end = at + 3;
  const auto run = [&](int stage, int ranks, int first, int last, CrashFileSystem* from,
                       CrashFileSystem* to) {
    ToyRun each = of;
    each.stage = stage, each.ranks = ranks, each.first = first, each.last = last;
    each.from = from, each.to = to;
    // Fewer ranks have one hop.
    if (ranks != kRanks) each.node_ranks = 0;
    return each;
  };
  CrashFileSystem whole, saved;
  ToyRun goes_on = run(0, kRanks, 0, end, nullptr, &whole);
  goes_on.shares_at = at;
  const auto wanted = Train(goes_on);
  ASSERT_FALSE(wanted.empty());
  Train(run(0, kRanks, 0, at, nullptr, &saved));
  for (const int from : {0, 1, 2}) {
    CrashFileSystem again, resumed;
    Train(run(from, kRanks, 0, at, nullptr, &again));
    EXPECT_EQ(FilesOf(again, at), FilesOf(saved, at)) << "stage " << from;
    EXPECT_EQ(Train(run((from + 1) % 3, kRanks, at, end, &again, &resumed)), wanted)
        << "stage " << from;
    EXPECT_EQ(FilesOf(resumed, end), FilesOf(whole, end)) << "stage " << from;
  }
  if (at != kSkipped) return;
  // Other ranks, which then make a step that keeps all: two of them have the mean of two errors
  // that are equal, exactly; of three their sum rounds, and 1 / 3, and the product of both.
  CrashFileSystem by_two, by_three;
  Train(run(2, 2, at, at + 1, &saved, &by_two));
  EXPECT_TRUE(NumbersOf(by_two, at + 1) == NumbersOf(saved, at));
  Train(run(1, 3, at, at + 1, &saved, &by_three));
  ExpectTheSameButForRoundings(NumbersOf(by_three, at + 1), NumbersOf(saved, at), 3);
  // Two go on from there as they do without a save.
  CrashFileSystem two_go_on, two_resumed;
  const auto by_two_ranks = Train(run(0, 2, at, end, &saved, &two_go_on));
  EXPECT_NE(by_two_ranks, wanted);
  EXPECT_EQ(Train(run(1, 2, at + 1, end, &by_two, &two_resumed)), by_two_ranks);
  EXPECT_EQ(FilesOf(two_resumed, end), FilesOf(two_go_on, end));
}

TEST(RoundTripTest, ErrorsOfExchangesGoOnInAnyStage) {
  const std::pair<zero::GradientCompression, int> exchanges[] = {
      {zero::GradientCompression::kOneBit, 0},
      {zero::GradientCompression::kOneBit, 2},
      {zero::GradientCompression::kPowerSgd, 0},
      {zero::GradientCompression::kTopK, 0}};
  for (const auto& [method, node_ranks] : exchanges) {
    SCOPED_TRACE(absl::StrCat(Name(method), ", nodes of ", node_ranks));
    const zero::CompressionOptions options = {.method = method, .rank = 2, .density = 0.03};
    ExpectErrorsToGoOn({.gradient_compression = options, .node_ranks = node_ranks}, /*at=*/4);
  }
}

// Step 3 is the first one that sends moments: saved before it, and behind it.
TEST(RoundTripTest, OneBitOptimizersGoOnWithTheSameBits) {
  using optim::OptimizerKind;
  for (const auto& [kind, node_ranks] :
       {std::pair(OptimizerKind::kOneBitAdam, 0), std::pair(OptimizerKind::kOneBitAdam, 2),
        std::pair(OptimizerKind::kOneBitLamb, 0)}) {
    for (const int at : {3, 4}) {
      SCOPED_TRACE(absl::StrCat(optim::ExchangingName(kind), ", nodes of ", node_ranks,
                                ", saved before step ", at));
      ExpectErrorsToGoOn({.node_ranks = node_ranks, .optimizer = kind, .freeze_step = 3}, at);
    }
  }
}

// 0/1 Adam, whose third step sends signs of gradients, and whose ranks go on alone in the fifth,
// which is skipped, the seventh and the ninth. Saves come behind these.
TEST(RoundTripTest, ZeroOneAdamGoesOnWithTheSameBits) {
  for (const int clipper : {1, 2}) {
    const optim::ZeroOneSchedule schedule = {.var_freeze_step = 3,
                                             .var_update_scaler = 1,
                                             .local_step_scaler = 1,
                                             .local_step_clipper = clipper};
    for (const int at : {3, 5, 7}) {
      SCOPED_TRACE(absl::StrCat("up to ", clipper, " steps, saved at ", at));
      CrashFileSystem nine;
      ToyRun run = {.stage = 0, .ranks = 4, .last = 9, .to = &nine, .zero_one = schedule};
      run.shares_at = at;
      const auto wanted = Train(run);
      const int stages = clipper == 1 ? 3 : 1;
      for (int from = 0; from < stages; ++from) {
        CrashFileSystem saved, resumed;
        Train({.stage = from, .ranks = 4, .last = at, .to = &saved, .zero_one = schedule});
        EXPECT_EQ(Train({.stage = (from + 1) % stages,
                         .ranks = 4,
                         .first = at,
                         .last = 9,
                         .from = &saved,
                         .to = &resumed,
                         .zero_one = schedule}),
                  wanted);
        EXPECT_EQ(FilesOf(resumed, 9), FilesOf(nine, 9));
        // Other ranks have the same weights and moments, and go on.
        CrashFileSystem by_three, by_one;
        const auto loaded = Train({.stage = from,
                                   .ranks = 3,
                                   .first = at,
                                   .last = at,
                                   .from = &saved,
                                   .to = &by_three,
                                   .zero_one = schedule});
        const auto again = Train({.stage = from,
                                  .ranks = 2,
                                  .first = at,
                                  .last = at,
                                  .from = &by_three,
                                  .to = &by_one,
                                  .zero_one = schedule});
        EXPECT_FALSE(loaded.empty());
        EXPECT_EQ(again, loaded);
        EXPECT_FALSE(Train({.stage = 0,
                            .ranks = 3,
                            .first = at,
                            .last = 9,
                            .from = &by_one,
                            .zero_one = schedule})
                         .empty());
      }
    }
  }
}

// Errors of gradients that are summed as codes: step 4 is skipped, and the scale grows.
TEST(RoundTripTest, ErrorsOfCodesGoOnWithTheSameBits) {
  for (const int node_ranks : {0, 2}) {
    CrashFileSystem six;
    ToyRun run = {.stage = 0, .ranks = 4, .last = 6, .to = &six, .has_loco = true};
    run.node_ranks = node_ranks;
    run.shares_at = 3;
    const auto wanted = Train(run);
    for (int from = 0; from < zero::kStages; ++from) {
      SCOPED_TRACE(absl::StrCat("stage ", from, ", nodes of ", node_ranks));
      CrashFileSystem three, resumed;
      run = {.stage = from, .ranks = 4, .last = 3, .to = &three, .has_loco = true};
      run.node_ranks = node_ranks;
      Train(run);
      run = {.stage = (from + 1) % zero::kStages, .ranks = 4, .first = 3, .last = 6};
      run.from = &three, run.to = &resumed, run.has_loco = true, run.node_ranks = node_ranks;
      EXPECT_EQ(Train(run), wanted);
      EXPECT_EQ(FilesOf(resumed, 6), FilesOf(six, 6));
    }
  }
}

TEST(RoundTripTest, AnyRanksLoadErrorsOfCodesAndSaveTheSameBytes) {
  CrashFileSystem disk;
  ToyRun run = {.stage = 1, .ranks = 4, .last = 3, .to = &disk, .has_loco = true};
  run.node_ranks = 2;
  const auto wanted = Train(run);
  const std::vector<zero::Home> homes = zero::Homes();
  for (size_t i = 0; i < homes.size(); ++i) {
    const auto [ranks, shard_ranks] =
        std::array<std::pair<int, int>, 5>{{{1, 0}, {2, 0}, {3, 0}, {4, 2}, {2, 1}}}[i % 5];
    SCOPED_TRACE(absl::StrCat(ToString(homes[i]), ", ", ranks, " ranks, ", shard_ranks));
    CrashFileSystem again;
    run = {.stage = homes[i].stage, .ranks = ranks, .first = 3, .last = 3, .from = &disk};
    run.to = &again, run.has_loco = true, run.offload = homes[i].offload;
    if (!run.offload.enabled()) run.shard_ranks = shard_ranks;
    EXPECT_EQ(Train(run), wanted);
    EXPECT_EQ(FilesOf(again, 3), FilesOf(disk, 3));
  }
}

// The errors of a checkpoint, which come behind master and moments, without the headers.
std::vector<float> ErrorsIn(const std::map<std::string, std::string>& numbers) {
  constexpr size_t kHeader = 4096;
  std::vector<float> errors;
  for (const auto& [name, bytes] : numbers) {
    if (!absl::StartsWith(name, "/moment3")) continue;
    const size_t count = (bytes.size() - kHeader) / sizeof(float);
    errors.resize(errors.size() + count);
    std::memcpy(&*(errors.end() - static_cast<std::ptrdiff_t>(count)), bytes.data() + kHeader,
                count * sizeof(float));
  }
  return errors;
}

// Other ranks, which then make a step that is skipped and keeps all: of errors of codes their sum
// stays, but for half a code of 8 bits of the largest, which each rank's share of it may lose.
TEST(RoundTripTest, OtherRanksKeepTheSumOfErrorsOfCodes) {
  constexpr int kSkipped = 4;
  CrashFileSystem disk;
  ToyRun run = {.stage = 1, .ranks = 4, .last = kSkipped, .to = &disk, .has_loco = true};
  run.node_ranks = 2;
  Train(run);
  const auto saved = NumbersOf(disk, kSkipped);
  const std::vector<float> wanted = ErrorsIn(saved);
  float largest = 0;
  for (const float x : wanted) largest = std::max(largest, std::fabs(x));
  EXPECT_GT(largest, 0.01);
  for (const int ranks : {2, 3}) {
    CrashFileSystem again;
    run = {.stage = 2, .ranks = ranks, .first = kSkipped, .last = kSkipped + 1, .from = &disk};
    run.to = &again, run.has_loco = true;
    Train(run);
    const auto kept = NumbersOf(again, kSkipped + 1);
    for (const auto& [name, bytes] : saved) {
      EXPECT_TRUE(absl::StartsWith(name, "/moment3") || kept.at(name) == bytes) << name;
    }
    const std::vector<float> errors = ErrorsIn(kept);
    ASSERT_EQ(errors.size(), wanted.size());
    for (size_t i = 0; i < errors.size(); ++i) {
      EXPECT_NEAR(errors[i], wanted[i], largest / 254 * 1.001) << ranks << " ranks, " << i;
    }
  }
}

TEST(RoundTripTest, PieceFilesHoldTheSameState) {
  for (const int saved_by : {1, 3}) {
    CrashFileSystem pieces;
    const auto wanted = Train(
        {.stage = 2, .ranks = saved_by, .last = 3, .to = &pieces, .mode = WriteMode::kPieceFiles});
    CrashFileSystem in_place;
    Train({.stage = 1, .ranks = saved_by, .last = 3, .to = &in_place});
    for (const int loaded_by : {1, 2, 3}) {
      CrashFileSystem again;
      EXPECT_EQ(Train({.stage = 3,
                       .ranks = loaded_by,
                       .first = 3,
                       .last = 3,
                       .from = &pieces,
                       .to = &again}),
                wanted);
      EXPECT_EQ(FilesOf(again, 3), FilesOf(in_place, 3));
    }
  }
}

}  // namespace
}  // namespace brigade::checkpoint
