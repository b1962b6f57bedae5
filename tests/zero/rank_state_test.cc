// State out and in: in memory, through files, from one stage to another.

#include "brigade/zero/rank_state.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

ZeroOptions Options(int stage) {
  ZeroOptions options;
  options.stage = stage;
  options.dtype = precision::DType::kFloat16;
  options.bucket_elements = 1000;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 14;
  options.loss_scaler.loss_scale_window = 3;
  return options;
}

std::string PathOf(int rank) {
  return absl::StrCat(::testing::TempDir(), "/state_test.rank", rank);
}

// Steps [first, last) from a state (none: a new run); returns rank 0's parameters.
std::vector<std::vector<float>> Train(int stage, int first, int last, bool load, bool save) {
  std::vector<std::vector<float>> result;
  collectives::OnThreads({.size = kRanks}, [&](collectives::Rank& self) {
    auto zero = CreateZero(ToyModel(), Options(stage), self);
    ASSERT_OK(zero);
    if (load) {
      auto state = ReadState(PathOf(self.rank));
      ASSERT_OK(state);
      ASSERT_OK((*zero)->LoadState(*state));
    } else {
      ASSERT_OK(InitializeToy(**zero));
    }
    ToyTrainer trainer(**zero, self);
    trainer.step = first;
    while (trainer.step < last) ASSERT_OK(trainer.Step());
    ASSERT_OK(self.stream->Synchronize());
    if (save) {
      auto state = (*zero)->SaveState();
      ASSERT_OK(state);
      ASSERT_OK(WriteState(*state, PathOf(self.rank)));
    }
    auto exported = Exported(**zero);
    ASSERT_OK(exported);
    if (self.rank == 0) result = *std::move(exported);
  });
  return result;
}

TEST(StateTest, GoesOnWithTheSameBitsInAnyStage) {
  const auto wanted = Train(0, 0, 12, false, false);
  ASSERT_FALSE(wanted.empty());
  for (int from = 0; from < kStages; ++from) {
    Train(from, 0, 6, false, true);
    for (int to = 0; to < kStages; ++to) {
      EXPECT_EQ(Train(to, 6, 12, true, false), wanted) << from << " to " << to;
    }
  }
}

TEST(StateTest, RefusesAnotherRanksOrModelsStateOnAllRanks) {
  Train(1, 0, 1, false, true);
  collectives::OnThreads({.size = kRanks}, [&](collectives::Rank& self) {
    auto zero = CreateZero(ToyModel(), Options(2), self).value();
    auto state = ReadState(PathOf(self.rank)).value();
    const auto refuses = [&](const RankState& bad, const char* text) {
      EXPECT_THAT(zero->LoadState(self.rank == 1 ? bad : state),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
    };
    RankState bad = state;
    bad.rank = 0;
    refuses(bad, "the state is of rank 0 of 3, this is rank 1");
    bad = state;
    bad.plan_hash ^= 1;
    refuses(bad, "another model, plan or optimizer");
    bad = state;
    bad.buckets[0].arrays[0].pop_back();
    refuses(bad, "do not have the plan's sizes");
    bad = state;
    bad.step.step += 100;
    bad.step.iteration += 100;
    EXPECT_THAT(zero->LoadState(self.rank == 1 ? bad : state),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 0 is at step"), HasSubstr("rank 1 at step 10"))));
    bad = state;
    bad.step.hysteresis = -5;
    refuses(bad, "hysteresis");
    EXPECT_OK(zero->LoadState(state));
  });
}

TEST(StateTest, NoticesADamagedFile) {
  Train(1, 0, 1, false, true);
  const std::string path = PathOf(0);
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  ASSERT_GT(good.size(), 1000u);
  const auto read = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return ReadState(path).status();
  };
  EXPECT_OK(read(good));
  for (const size_t at : {size_t{8}, size_t{100}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_THAT(read(bad), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path))) << at;
    EXPECT_THAT(read(good.substr(0, at)), StatusIs(absl::StatusCode::kDataLoss)) << at;
  }
  EXPECT_THAT(read(good + "x"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(read("something else"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a state of a rank")));
  EXPECT_THAT(ReadState(path + ".none").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(WriteState({}, "/no/such/folder/state"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such/folder/state")));
  EXPECT_THAT(WriteState({}, "/dev/null"),
              StatusIs(absl::StatusCode::kInvalidArgument, "/dev/null is a device, not a file"));
  EXPECT_THAT(ReadState("/dev/zero").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "/dev/zero is a device, not a file"));
}

// With the right checksum.
TEST(StateTest, RefusesWhatNoTrainingMakes) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/contradiction");
  RankState good;
  good.step.loss_scale = 1;
  good.buckets = {{{{1.0f}, {0.0f, 2.0f}}}};
  const auto read = [&](const std::function<void(RankState&)>& change) {
    RankState state = good;
    change(state);
    EXPECT_OK(WriteState(state, path));
    return ReadState(path).status();
  };
  const auto refuses = [&](const char* text, const std::function<void(RankState&)>& change) {
    EXPECT_THAT(read(change),
                StatusIs(absl::StatusCode::kDataLoss,
                         absl::StrCat(path, " holds what no training makes: ", text)));
  };
  EXPECT_OK(read([](RankState&) {}));
  refuses("rank 1 of 1", [](RankState& s) { s.rank = 1; });
  refuses("rank -1 of 1", [](RankState& s) { s.rank = -1; });
  refuses("rank 0 of 0", [](RankState& s) { s.ranks = 0; });
  refuses("step 2, iteration 1, last overflow at 0", [](RankState& s) {
    s.step.step = 2;
    s.step.iteration = 1;
  });
  refuses("a loss scale of 0", [](RankState& s) { s.step.loss_scale = 0; });
  refuses("a gradient norm of nan", [](RankState& s) { s.step.grad_norm = std::nan(""); });
  refuses("a hysteresis of -1", [](RankState& s) { s.step.hysteresis = -1; });
  refuses("a flag of 2", [](RankState& s) { s.step.skip = 2; });
  refuses("a flag of -1", [](RankState& s) { s.step.stuck_at_minimum = -1; });
  refuses("something where nothing is kept", [](RankState& s) { s.step.reserved = 1; });
  refuses("nan as element 1 of array 1 of bucket 0",
          [](RankState& s) { s.buckets[0].arrays[1][1] = std::nanf(""); });
  refuses("inf as element 0 of array 0 of bucket 0",
          [](RankState& s) { s.buckets[0].arrays[0][0] = INFINITY; });
}

}  // namespace
}  // namespace brigade::zero
