// The search: what fits, in which order it is tried, and how near the best of the whole grid the
// result is.

#include "brigade/tune/tuner.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tune/report.h"
#include "brigade/tune/setup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::tune {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAreArray;

constexpr char kConfig[] = R"({
    "train_batch_size": 8, "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, "gradient_clipping": 1.0})";

const gpt::Corpus& Texts() {
  static const gpt::Corpus corpus = gpt::ReadLicences().value();
  return corpus;
}

// A search on threads of this process.
class Tuning {
 public:
  Tuning(const gpt::ModelOptions& model, int ranks) : ranks_(ranks) {
    make_job = [model, ranks](const std::string& text) -> absl::StatusOr<gpt::Job> {
      gpt::Job job;
      job.model = model;
      BRIGADE_ASSIGN_OR_RETURN(job.config, gpt::ParseConfig(text, ranks));
      job.model.tensor_shards = job.config.tensor_shards;
      BRIGADE_RETURN_IF_ERROR(gpt::Validate(job.model));
      BRIGADE_RETURN_IF_ERROR(gpt::Validate(gpt::ShapeOf(job)));
      return job;
    };
    world = World::Create(ranks, device::Cpu(), {}, &recorder.tracer()).value();
    figures.topology.ranks_of_node = {ranks};
    figures.topology.inside = figures.topology.between = {1e-5, 5e9};
    figures.processors = Processors();
    rank_model = std::make_unique<RankModel>(*world, figures);
    totals = {.ranks = ranks, .batch = 8};
  }

  absl::StatusOr<Search> Find(const Space& space, const Limits& limits = {}) {
    return FindFitting(Json::parse(kConfig), space, totals, make_job, limits, *rank_model, stop);
  }
  absl::Status Predict(std::vector<Candidate>& candidates) {
    BRIGADE_RETURN_IF_ERROR(MeasureMachine(*world, figures));
    return PredictTimes(Texts(), *world, recorder, figures, *rank_model, candidates, stop);
  }
  absl::Status Run(const std::vector<size_t>& order, const TrialPlan& plan, const Limits& limits,
                   std::vector<Candidate>& candidates) {
    return RunTrials(order, plan, ranks_, Texts(), limits, candidates, stop, [this](size_t index) {
      tried.push_back(index);
      if (std::ssize(tried) == stop_after) stop = true;
    });
  }

  gpt::Recorder recorder{nullptr};
  std::unique_ptr<World> world;
  Figures figures;
  std::unique_ptr<RankModel> rank_model;
  Totals totals;
  MakeJob make_job;
  std::atomic<bool> stop = false;
  std::vector<size_t> tried;
  int64_t stop_after = -1;

 private:
  const int ranks_;
};

const gpt::ModelOptions kTiny = {.layers = 2, .heads = 2, .width = 32, .context = 32};

std::vector<Candidate> WithSeconds(const std::vector<double>& predicted) {
  std::vector<Candidate> candidates(predicted.size());
  for (size_t i = 0; i < predicted.size(); ++i) {
    candidates[i].prediction.seconds.passes = predicted[i];
  }
  return candidates;
}

TEST(RankCorrelationTest, IsSpearmans) {
  EXPECT_DOUBLE_EQ(RankCorrelation({1, 2, 3, 4}, {10, 20, 30, 99}), 1);
  EXPECT_DOUBLE_EQ(RankCorrelation({1, 2, 3}, {3, 2, 1}), -1);
  // 1 - 6 sum d^2 / (n (n^2 - 1)) = 1 - 6 * 2 / 24.
  EXPECT_DOUBLE_EQ(RankCorrelation({1, 2, 3}, {1, 3, 2}), 0.5);
  // Ranks 0, 1.5, 1.5, 3 beside 0, 1, 2, 3.
  EXPECT_NEAR(RankCorrelation({1, 2, 2, 3}, {1, 2, 3, 4}), 0.9486832980505138, 1e-12);
  EXPECT_DOUBLE_EQ(RankCorrelation({1}, {1}), 0);
  EXPECT_DOUBLE_EQ(RankCorrelation({1, 1}, {1, 2}), 0);
}

TEST(OrderOfTrialsTest, OfEachFamilyTheFirstComesBeforeTheOthers) {
  std::vector<Candidate> candidates = WithSeconds({4, 2, 3, 1});
  candidates[0].point = {.stage = 1, .bucket = 4096};
  candidates[1].point = {.stage = 1, .bucket = 8192};
  candidates[2].point = {.stage = 2, .bucket = 4096};
  candidates[3].point = {.stage = 1, .bucket = 4096, .algorithm = "ring"};
  EXPECT_THAT(OrderOfTrials(candidates, gpt::TunerType::kModelBased, 1), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(OrderOfTrials(candidates, gpt::TunerType::kGridSearch, 1), ElementsAre(0, 1, 2, 3));
  const auto random = OrderOfTrials(candidates, gpt::TunerType::kRandom, 1);
  EXPECT_THAT(random, UnorderedElementsAreArray({0, 1, 2, 3}));
  EXPECT_EQ(random, OrderOfTrials(candidates, gpt::TunerType::kRandom, 1));
}

TEST(KeepLargestMicroBatchesTest, CountsSizesAndNotCandidates) {
  std::vector<Candidate> candidates(6);
  for (size_t i = 0; i < 6; ++i) {
    candidates[i].job.config.batch.train_micro_batch_size_per_gpu = int64_t{1} << (i / 2);
  }
  KeepLargestMicroBatches(2, candidates);
  EXPECT_THAT(candidates, SizeIs(4));
  KeepLargestMicroBatches(5, candidates);
  EXPECT_THAT(candidates, SizeIs(4));
}

TEST(FindFittingTest, WhatFitsIsWhatNeedsNoMoreThanTheLimit) {
  Tuning tuning(kTiny, 2);
  Space space = {.stages = {0, 1, 2, 3},
                 .tunes_micro_batch = true,
                 .max_micro_batch = 1024,
                 .recompute = {"none", "block"}};
  ASSERT_OK_AND_ASSIGN(const Search all, tuning.Find(space));
  ASSERT_THAT(all.fitting, SizeIs(4 * 3 * 2));
  EXPECT_EQ(all.too_large, 0);
  std::vector<int64_t> bytes;
  for (const Candidate& each : all.fitting) bytes.push_back(each.prediction.needs.device_bytes);
  std::vector<int64_t> sorted = bytes;
  std::sort(sorted.begin(), sorted.end());
  const int64_t limit = sorted[sorted.size() / 2];
  ASSERT_OK_AND_ASSIGN(const Search some, tuning.Find(space, {.device_bytes = limit}));
  std::set<std::string> wanted, found;
  for (const Candidate& each : all.fitting) {
    if (each.prediction.needs.device_bytes <= limit) wanted.insert(each.text);
  }
  int with_budget = 0;
  for (const Candidate& each : some.fitting) {
    EXPECT_LE(each.prediction.needs.device_bytes, limit);
    const bool is_budget = each.job.config.recompute.kind == recompute::Policy::Kind::kBudget;
    with_budget += is_budget;
    if (!is_budget) found.insert(each.text);
  }
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(some.too_large, std::ssize(all.fitting) - std::ssize(wanted));
  // What does not fit whole is tried with as much as the rest leaves it.
  EXPECT_GT(with_budget, 0);
}

TEST(FindFittingTest, CountsWhatConfigsRefuse) {
  Tuning tuning(kTiny, 2);
  // In stage 0 every rank updates everything.
  ASSERT_OK_AND_ASSIGN(const Search search,
                       tuning.Find({.stages = {0, 1}, .offload = {{.optimizer = "cpu"}}}));
  EXPECT_THAT(search.fitting, SizeIs(1));
  ASSERT_THAT(search.refused, SizeIs(1));
  EXPECT_THAT(search.refused.begin()->first, HasSubstr("offload_optimizer.device"));
  EXPECT_EQ(search.points, 2);
}

TEST(FindFittingTest, SaysHowManyBytesAreMissingAndWhatHelps) {
  Tuning tuning(kTiny, 2);
  const Space space = {.stages = {0, 1}};
  ASSERT_OK_AND_ASSIGN(const Search all, tuning.Find(space));
  int64_t least = all.fitting[0].prediction.needs.device_bytes;
  for (const Candidate& each : all.fitting) {
    least = std::min(least, each.prediction.needs.device_bytes);
  }
  const Limits limits = {.device_bytes = least - 1000};
  ASSERT_OK_AND_ASSIGN(const Search none, tuning.Find(space, limits));
  EXPECT_THAT(none.fitting, SizeIs(0));
  ASSERT_TRUE(none.smallest.has_value());
  EXPECT_EQ(ShortBytes(none.smallest->prediction, limits), 1000);
  TuningSetup setup = {.config = Json::parse(kConfig),
                       .totals = tuning.totals,
                       .space = space,
                       .tuned = {Dimension::kStage}};
  setup.options.max_micro_batch = 1024;
  ASSERT_OK_AND_ASSIGN(
      const std::vector<Help> helps,
      FindHelp(setup, kTiny, *none.smallest, tuning.make_job, limits, *tuning.rank_model));
  ASSERT_FALSE(helps.empty());
  bool fits = false;
  for (const Help& help : helps) {
    EXPECT_LT(help.device_bytes, least) << help.what;
    EXPECT_EQ(help.short_bytes, std::max<int64_t>(help.device_bytes - limits.device_bytes, 0))
        << help.what;
    fits = fits || help.short_bytes <= 0;
  }
  EXPECT_TRUE(fits);
  const std::string text = DescribeNoFit(none, limits, helps);
  EXPECT_THAT(text, HasSubstr("is 1000 bytes short"));
  EXPECT_THAT(text, HasSubstr("--tune=micro_batch"));
  EXPECT_THAT(text, HasSubstr("--tune=recompute"));
}

TEST(FindFittingTest, StopsWhenItIsAsked) {
  Tuning tuning(kTiny, 2);
  tuning.stop = true;
  EXPECT_THAT(tuning.Find({.stages = {0, 1}}), StatusIs(absl::StatusCode::kCancelled));
}

TEST(RunTrialsTest, TriesAsManyAsItMayAndStopsEarlyWithoutABetterOne) {
  Tuning tuning(kTiny, 1);
  ASSERT_OK_AND_ASSIGN(Search search, tuning.Find({.tunes_micro_batch = true,
                                                   .max_micro_batch = 1024,
                                                   .recompute = {"none", "block"}}));
  std::vector<Candidate>& all = search.fitting;
  ASSERT_THAT(all, SizeIs(8));
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const TrialPlan three = {.steps = {1, 1}, .trials = 3, .early_stopping = 5, .rounds = 1};
  ASSERT_OK(tuning.Run(order, three, {}, all));
  EXPECT_THAT(tuning.tried, ElementsAre(0, 1, 2));
  ASSERT_TRUE(BestOf(all).has_value());
  // Whatever follows is slower than what takes no time.
  all[3].measured = Measured{.seconds = 1e-12};
  tuning.tried.clear();
  const TrialPlan two = {.steps = {1, 1}, .trials = 8, .early_stopping = 2, .rounds = 1};
  ASSERT_OK(tuning.Run(order, two, {}, all));
  EXPECT_THAT(tuning.tried, ElementsAre(0, 1));
}

TEST(RunTrialsTest, WhatWasTriedBeforeAnInterruptCounts) {
  Tuning tuning(kTiny, 2);
  ASSERT_OK_AND_ASSIGN(Search search, tuning.Find({.stages = {0, 1, 2, 3}}));
  std::vector<size_t> order = {0, 1, 2, 3};
  tuning.stop_after = 2;
  ASSERT_OK(tuning.Run(order, {.steps = {1, 1}, .rounds = 3}, {}, search.fitting));
  EXPECT_THAT(tuning.tried, ElementsAre(0, 1));
  EXPECT_TRUE(BestOf(search.fitting).has_value());
}

TEST(RunTrialsTest, AFailedTrialIsToldOfAndIsNotTheBest) {
  Tuning tuning(kTiny, 2);
  ASSERT_OK_AND_ASSIGN(Search search, tuning.Find({.stages = {0, 3}}));
  // Less than is needed, which FindFitting would have left out.
  const Limits limits = {.device_bytes = 1000};
  ASSERT_OK(tuning.Run({0, 1}, {.steps = {1, 1}, .rounds = 2}, limits, search.fitting));
  EXPECT_FALSE(BestOf(search.fitting).has_value());
  EXPECT_THAT(search.fitting[0].failed, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(TrialTable(search.fitting, gpt::TuningMetric::kLatency, 2), HasSubstr("failed"));
}

// The whole grid, measured by turns: of each configuration its least time over the rounds, and of
// those near the best of more rounds, until the best stays.
std::vector<double> MeasureAll(const std::vector<Candidate>& candidates, int ranks,
                               const TrialSteps& steps, int rounds, int more_rounds) {
  std::vector<double> least(candidates.size(), 1e300);
  const std::atomic<bool> stop = false;
  const auto round = [&](double near) {
    const double best = *std::min_element(least.begin(), least.end());
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (near > 0 && least[i] > near * best) continue;
      gpt::Job job = candidates[i].job;
      job.corpus = Texts();
      const auto measured = Try(job, ranks, steps, stop);
      EXPECT_OK(measured);
      if (measured.ok()) least[i] = std::min(least[i], measured->seconds);
    }
  };
  for (int r = 0; r < rounds; ++r) round(0);
  for (int r = 0; r < more_rounds; ++r) round(1.15);
  return least;
}

// The tuner's result beside the best of the grid: how much longer its step takes, as a share.
double RegretOf(const gpt::ModelOptions& model, int64_t batch, const Space& space,
                const TrialSteps& steps, int rounds, int more_rounds) {
  constexpr int kRanks = 2;
  Tuning tuning(model, kRanks);
  tuning.totals.batch = batch;
  Json config = Json::parse(kConfig);
  config["train_batch_size"] = batch;
  const absl::StatusOr<Search> search = FindFitting(config, space, tuning.totals, tuning.make_job,
                                                    {}, *tuning.rank_model, tuning.stop);
  EXPECT_OK(search);
  if (!search.ok()) return -1;
  std::vector<Candidate> candidates = search->fitting;
  EXPECT_OK(tuning.Predict(candidates));
  const TrialPlan plan = {.steps = steps, .early_stopping = 5, .rounds = rounds + more_rounds};
  EXPECT_OK(
      tuning.Run(OrderOfTrials(candidates, gpt::TunerType::kModelBased, 1), plan, {}, candidates));
  EXPECT_LE(std::set<size_t>(tuning.tried.begin(), tuning.tried.end()).size(), 5u);
  const std::optional<size_t> chosen = BestOf(candidates);
  EXPECT_TRUE(chosen.has_value());
  if (!chosen.has_value()) return -1;
  // Those that the model puts first, and of them the fastest.
  const std::vector<size_t> order = OrderOfTrials(candidates, gpt::TunerType::kModelBased, 1);
  for (size_t place = 0; place < order.size(); ++place) {
    const Candidate& each = candidates[order[place]];
    EXPECT_EQ(each.was_tried, place < 5) << place;
    if (each.measured.has_value()) {
      EXPECT_GE(each.measured->seconds, candidates[*chosen].measured->seconds);
    }
  }
  for (const Candidate& each : candidates) {
    if (!each.was_tried) continue;
    EXPECT_OK(each.failed) << ToString(each.point);
    EXPECT_EQ(each.measured->device_bytes, each.measured->modelled_bytes);
    EXPECT_LE(each.measured->device_bytes, each.prediction.needs.device_bytes);
  }
  std::vector<double> least = MeasureAll(candidates, kRanks, steps, rounds, more_rounds);
  // Its own trials count too.
  least[*chosen] = std::min(least[*chosen], candidates[*chosen].measured->seconds);
  const auto best = std::min_element(least.begin(), least.end());
  std::vector<double> predicted;
  for (const Candidate& each : candidates) predicted.push_back(each.prediction.seconds.total());
  const double regret = least[*chosen] / *best - 1;
  std::printf(
      "%zu configurations, rank correlation of prediction and measurement %.3f\n"
      "best of all    %8.3f ms (predicted %8.3f): %s\n"
      "the tuner's    %8.3f ms (predicted %8.3f): %s\n"
      "regret %.2f %%; of the first predicted one %.2f %%; of the median one %.1f %%\n",
      candidates.size(), RankCorrelation(predicted, least), *best * 1e3,
      predicted[static_cast<size_t>(best - least.begin())] * 1e3,
      ToString(candidates[static_cast<size_t>(best - least.begin())].point).c_str(),
      least[*chosen] * 1e3, predicted[*chosen] * 1e3, ToString(candidates[*chosen].point).c_str(),
      100 * regret,
      100 * (least[OrderOfTrials(candidates, gpt::TunerType::kModelBased, 1)[0]] / *best - 1), [&] {
        std::vector<double> sorted = least;
        std::sort(sorted.begin(), sorted.end());
        return 100 * (sorted[sorted.size() / 2] / *best - 1);
      }());
  if (std::getenv("TUNE_PRINT_ALL") != nullptr) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      const StepSeconds& s = candidates[i].prediction.seconds;
      std::printf(
          "%8.3f ms, predicted %8.3f (passes %.3f shared %.3f collectives %.3f update %.3f "
          "moves %.3f bubble %.3f): %s\n",
          least[i] * 1e3, predicted[i] * 1e3, s.passes * 1e3, s.shared_passes * 1e3,
          s.collectives * 1e3, s.update * 1e3, s.moves * 1e3, s.bubble * 1e3,
          ToString(candidates[i].point).c_str());
    }
  }
  return regret;
}

// Each day a tiny grid, for what RegretOf expects of every search: how many are tried, what they
// need, and which one is the result. Its steps are so short that what else a machine does decides
// about their times: how near the best the result is, the soak test says.
TEST(TunerGridTest, OfATinyGridTheResultIsTheFastestOfFive) {
  const Space space = {.stages = {0, 3},
                       .tunes_micro_batch = true,
                       .max_micro_batch = 1024,
                       .recompute = {"none", "block"}};
  EXPECT_GE(RegretOf(kTiny, 8, space, {.first = 2, .last = 6}, 1, 1), 0);
}

TEST(TunerGridSoakTest, TheResultIsWithinThreePercentOfTheBestOfTheGrid) {
  const gpt::ModelOptions model = {.layers = 3, .heads = 4, .width = 128, .context = 64};
  const Space space = {.stages = {0, 1, 2, 3},
                       .tunes_micro_batch = true,
                       .max_micro_batch = 1024,
                       .recompute = {"none", "block"},
                       .tensor = {1, 2}};
  const double regret = RegretOf(model, 8, space, {.first = 2, .last = 4}, 3, 8);
  EXPECT_GE(regret, 0);
  EXPECT_LE(regret, 0.03);
}

}  // namespace
}  // namespace brigade::tune
