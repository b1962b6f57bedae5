// One flipped bit in every stage, with the state in every place, on every engine, in one group and
// in several: what names it, and whom. Tests of step_digests_test are the short ones.

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/digests/first_difference.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/digests/toy_digests.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::digests {
namespace {

constexpr int kRanks = 6;
constexpr int kGroup = 2;

// What a flip leads to, by what has a second copy (docs/digests.md).
enum class Found {
  // All ranks name the one that is alone.
  kInTheStep,
  // Its own update differs: another run's digests do, and its ranks' once that shows in 16 bits.
  kOnceItShows,
  // All ranks go on with the same wrong sum: another run's digests differ.
  kByAnotherRun,
  // The update overwrites a weight of which there is one copy.
  kNowhere,
};

Found WhereFound(int stage, bool has_groups, bool in_gradient) {
  if (has_groups) return Found::kInTheStep;
  if (in_gradient) return stage == 0 ? Found::kOnceItShows : Found::kByAnotherRun;
  return stage < 3 ? Found::kInTheStep : Found::kNowhere;
}

void ExpectIsFound(const Seen& seen, const Seen& wanted, const Flip& flip, Found found) {
  EXPECT_GE(seen.flipped, 0);
  const std::string alone = absl::StrCat("rank ", flip.rank, " is alone");
  if (found == Found::kInTheStep) return ExpectFoundIn(seen, flip.step, alone);
  if (found == Found::kOnceItShows) {
    for (int step = 0; step < kSteps; ++step) {
      const absl::Status& status = seen.checks[static_cast<size_t>(step)][0];
      if (status.ok()) continue;
      EXPECT_GT(step, flip.step);
      ExpectFoundIn(seen, step, alone);
      break;
    }
  } else {
    ExpectClean(seen);
  }
  if (found == Found::kNowhere) return ExpectAlike(seen, wanted);
  const auto compared = FirstDifference(seen.log, wanted.log);
  ASSERT_OK(compared);
  ASSERT_TRUE(compared->difference.has_value());
  EXPECT_EQ(compared->difference->step, flip.step + 1);
  EXPECT_EQ(compared->difference->kind, "gradients");
  EXPECT_EQ(compared->difference->tensors, std::vector<std::string>({"h.0.w"}));
}

TEST(FlippedProductSoakTest, OneBitIsNamedInEveryStagePlaceEngineAndGroup) {
  const std::pair<const char*, std::function<Seen(const Training&)>> engines[] = {
      {"threads", [](const Training& run) { return Train(run); }},
      {"messages", TrainOverMessages},
      {"gloo",
       [](const Training& run) {
         return Train(run, collectives::testing::GlooEngines({.size = run.ranks}));
       }},
  };
  std::map<Found, int> counts;
  int number = 0;
  for (const bool has_groups : {false, true}) {
    // All stages of as many ranks in a group have the same bits.
    Training plain = {.options = Options(1), .ranks = kRanks};
    if (has_groups) plain.options.shard_ranks = kGroup;
    const Seen wanted = Train(plain);
    ExpectClean(wanted);
    for (const zero::Home& home : zero::Homes()) {
      Training run = {.options = Options(home.stage), .ranks = kRanks};
      home.Set(run.options);
      run.options.offload.file.directory = ::testing::TempDir();
      if (has_groups) run.options.shard_ranks = kGroup;
      if (!zero::Validate(run.options).ok()) continue;
      // Stage 0 keeps all of it on every rank: there are no groups.
      if (has_groups && home.stage == 0) continue;
      for (const auto& [engine, train] : engines) {
        for (const bool in_gradient : {false, true}) {
          SCOPED_TRACE(absl::StrCat(zero::ToString(home), has_groups ? ", groups" : "", ", ",
                                    engine, in_gradient ? ", gradient" : ", weight", ", case ",
                                    number));
          const Found found = WhereFound(home.stage, has_groups, in_gradient);
          // Each rank and step is somebody's.
          run.flip = Flip{
              .step = number % (kSteps - 1), .rank = number % kRanks, .in_gradient = in_gradient};
          ++number;
          ++counts[found];
          ExpectIsFound(train(run), wanted, *run.flip, found);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_EQ(counts.size(), 4u);
  EXPECT_GT(number, 100);
}

}  // namespace
}  // namespace brigade::digests
