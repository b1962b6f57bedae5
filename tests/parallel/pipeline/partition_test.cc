#include "brigade/parallel/pipeline/partition.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PipelineShape Parts(int stages) { return {.schedule = {}, .stages = stages}; }

PipelineShape Interleaved(int stages, int chunks) {
  return {{ScheduleKind::kInterleaved, chunks}, stages, stages};
}

std::vector<int> Cut(const std::vector<double>& weights, const PipelineShape& shape,
                     const MemoryLimit* limit = nullptr) {
  const auto boundaries = LeastMaximum(weights, shape, limit);
  EXPECT_TRUE(boundaries.ok()) << boundaries.status();
  return boundaries.ok() ? *boundaries : std::vector<int>{};
}

// The weights of the parts between these boundaries.
std::vector<double> LoadsOf(absl::Span<const double> weights, absl::Span<const int> boundaries) {
  std::vector<double> loads;
  for (size_t i = 1; i < boundaries.size(); ++i) {
    double load = 0;
    for (int layer = boundaries[i - 1]; layer < boundaries[i]; ++layer) {
      load += weights[static_cast<size_t>(layer)];
    }
    loads.push_back(load);
  }
  return loads;
}

TEST(PartitionTest, CutsKnownChainsAsKnown) {
  const std::vector<double> ascending = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_THAT(Cut(ascending, Parts(3)), ElementsAre(0, 5, 7, 9));
  EXPECT_THAT(LoadsOf(ascending, {0, 5, 7, 9}), ElementsAre(15, 13, 17));
  EXPECT_THAT(Cut({7, 2, 5, 10, 8}, Parts(2)), ElementsAre(0, 3, 5));
  EXPECT_THAT(Cut({5, 1, 1, 1, 1, 5}, Parts(3)), ElementsAre(0, 1, 5, 6));
  EXPECT_THAT(Cut({4, 1, 1, 1, 1, 1, 1, 6}, Parts(4)), ElementsAre(0, 1, 4, 7, 8));
  EXPECT_THAT(Cut(std::vector<double>(10, 1), Parts(4)), ElementsAre(0, 2, 4, 7, 10));
  EXPECT_THAT(Cut({1, 4, 2, 2}, Parts(3)), ElementsAre(0, 1, 2, 4));
  // Best 8 where DeepSpeed's recurrence has 10.
  EXPECT_THAT(Cut({2, 8, 4, 4}, Parts(3)), ElementsAre(0, 1, 2, 4));
  // The GPT example: embedding, 4 blocks, head.
  const std::vector<double> gpt = {0, 7, 7, 7, 7, 1};
  EXPECT_THAT(Cut(gpt, Parts(1)), ElementsAre(0, 6));
  EXPECT_THAT(Cut(gpt, Parts(2)), ElementsAre(0, 3, 6));
  // Tied with 0 3 4 6.
  EXPECT_THAT(Cut(gpt, Parts(3)), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(Cut(gpt, Parts(4)), ElementsAre(0, 2, 3, 4, 6));
  EXPECT_THAT(Cut(gpt, Parts(6)), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Cut({0, 0, 0}, Parts(2)), ElementsAre(0, 1, 3));
}

// All boundaries there are.
void ForEachCut(int layers, int parts, std::vector<int>& boundaries,
                absl::FunctionRef<void(const std::vector<int>&)> visit) {
  const int placed = static_cast<int>(boundaries.size());
  if (placed == parts) {
    boundaries.push_back(layers);
    visit(boundaries);
    boundaries.pop_back();
    return;
  }
  for (int next = boundaries.back() + 1; next <= layers - (parts - placed); ++next) {
    boundaries.push_back(next);
    ForEachCut(layers, parts, boundaries, visit);
    boundaries.pop_back();
  }
}

// The largest part, the largest sum of a stage, the squares.
std::tuple<double, double, double> CostOf(const std::vector<double>& weights,
                                          const PipelineShape& shape,
                                          const std::vector<int>& boundaries) {
  const std::vector<double> loads = LoadsOf(weights, boundaries);
  std::vector<double> stages(static_cast<size_t>(shape.stages));
  double squares = 0;
  for (size_t part = 0; part < loads.size(); ++part) {
    stages[static_cast<size_t>(PlaceOf(shape, static_cast<int>(part)).stage)] += loads[part];
    squares += loads[part] * loads[part];
  }
  return {*std::max_element(loads.begin(), loads.end()),
          *std::max_element(stages.begin(), stages.end()), squares};
}

TEST(PartitionTest, IsTheFirstBestOfAllThatThereAre) {
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    const int layers = 1 + static_cast<int>(random() % 8);
    const int parts = 1 + static_cast<int>(random() % static_cast<unsigned>(layers));
    std::vector<double> weights;
    std::vector<int64_t> bytes;
    for (int layer = 0; layer < layers; ++layer) {
      weights.push_back(static_cast<double>(random() % 5));
      bytes.push_back(1 + static_cast<int64_t>(random() % 4));
    }
    // Earlier parts keep more.
    const bool has_limit = i % 2 == 1;
    const MemoryLimit limit = {
        .bytes = [&](int layer,
                     int part) { return bytes[static_cast<size_t>(layer)] * (parts - part); },
        .limit_bytes = std::vector<int64_t>(static_cast<size_t>(parts),
                                            2 + static_cast<int64_t>(random() % 20))};
    const PipelineShape shape = Parts(parts);
    std::optional<std::tuple<double, double, std::vector<int>>> best;
    std::vector<int> boundaries = {0};
    ForEachCut(layers, parts, boundaries, [&](const std::vector<int>& each) {
      if (has_limit && !CheckPartition(each, layers, shape, &limit).ok()) return;
      const auto [largest, sum, squares] = CostOf(weights, shape, each);
      const std::tuple cost(largest, squares, each);
      if (!best.has_value() || cost < *best) best = cost;
    });
    const auto cut = LeastMaximum(weights, shape, has_limit ? &limit : nullptr);
    if (!best.has_value()) {
      EXPECT_THAT(cut, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("does not fit")));
      continue;
    }
    ASSERT_OK(cut);
    EXPECT_EQ(*cut, std::get<2>(*best));
  }
}

TEST(PartitionTest, CountsTheSumOfAStagesChunks) {
  // Parts 0 and 2 are of stage 0: 0 1 2 3 4 has no larger part, but a sum of 6.
  const std::vector<double> weights = {3, 1, 1, 1, 2};
  EXPECT_THAT(Cut(weights, Parts(4)), ElementsAre(0, 1, 2, 4, 5));
  EXPECT_THAT(Cut(weights, Interleaved(2, 2)), ElementsAre(0, 1, 3, 4, 5));
  EXPECT_THAT(Cut(std::vector<double>(16, 1), Interleaved(4, 2)),
              ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16));
  // Parts 0 and 3 are of stage 0.
  EXPECT_THAT(Cut({3, 1, 1, 1, 2}, PipelineShape{{ScheduleKind::kZeroBubbleV, 2}, 2, 1}),
              ElementsAre(0, 1, 2, 4, 5));
}

// As partition.h says: the largest part is the least there is; the largest sum need not be.
TEST(PartitionTest, TheLargestSumOfAStageIsMostlyTheLeastThereIs) {
  std::mt19937 random(5);
  int least = 0, cases = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<double> weights;
    for (int layer = 0; layer < 6 + i % 3; ++layer) {
      weights.push_back(static_cast<double>(random() % 6));
    }
    const int layers = static_cast<int>(weights.size());
    const PipelineShape shape = Interleaved(2, 2);
    std::optional<std::tuple<double, double>> best;
    std::vector<int> boundaries = {0};
    ForEachCut(layers, 4, boundaries, [&](const std::vector<int>& each) {
      const auto [largest, sum, squares] = CostOf(weights, shape, each);
      if (!best.has_value() || std::tuple(largest, sum) < *best) best = {largest, sum};
    });
    const auto [largest, sum, squares] = CostOf(weights, shape, Cut(weights, shape));
    EXPECT_EQ(largest, std::get<0>(*best));
    EXPECT_GE(sum, std::get<1>(*best));
    least += sum == std::get<1>(*best) ? 1 : 0;
    ++cases;
  }
  EXPECT_GE(least, cases * 95 / 100) << least;
}

TEST(PartitionTest, KeepsToTheMemoryOfEachStage) {
  // 1F1B: earlier stages keep more micro-batches.
  const PipelineShape shape = {.schedule = {}, .stages = 2, .micro_batches = 4};
  const auto bytes = [&](int, int part) { return PeakActivations(shape, part); };
  const std::vector<double> ones(6, 1);
  const MemoryLimit wide = {bytes, {6, 6}}, narrow = {bytes, {4, 6}}, less = {bytes, {4, 3}};
  EXPECT_THAT(Cut(ones, shape, &wide), ElementsAre(0, 3, 6));
  EXPECT_THAT(Cut(ones, shape, &narrow), ElementsAre(0, 2, 6));
  EXPECT_THAT(
      LeastMaximum(ones, shape, &less),
      StatusIs(absl::StatusCode::kResourceExhausted,
               "partition: part 1 on stage 1 does not fit: layers 2 to 5 take 4 bytes of 3"));
  const MemoryLimit tiny = {bytes, {1, 100}};
  EXPECT_THAT(
      LeastMaximum(ones, shape, &tiny),
      StatusIs(absl::StatusCode::kResourceExhausted,
               "partition: part 0 on stage 0 does not fit: layers 0 to 0 take 2 bytes of 1"));
  // All chunks of a stage together.
  const PipelineShape interleaved = Interleaved(2, 2);
  const auto one = [](int, int) { return int64_t{1}; };
  const MemoryLimit together = {one, {5, 3}}, too_little = {one, {4, 3}};
  EXPECT_THAT(Cut(std::vector<double>(8, 1), interleaved, &together), ElementsAre(0, 3, 4, 6, 8));
  EXPECT_THAT(LeastMaximum(std::vector<double>(8, 1), interleaved, &too_little),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("does not fit")));
  EXPECT_THAT(
      CheckPartition({0, 4, 6}, 6, shape, &narrow),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("part 0 on stage 0 does not fit: layers 0 to 3 take 8 bytes of 4")));
  EXPECT_OK(CheckPartition({0, 2, 6}, 6, shape, &narrow));
}

TEST(PartitionTest, NumbersThatDoNotFitAreErrors) {
  EXPECT_THAT(LeastMaximum({1, 2, 3}, Interleaved(2, 2), nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "partition: 3 layers for 4 parts of a pipeline of 2 stages with 2 chunks; "
                       "none may be empty"));
  EXPECT_THAT(LeastMaximum({1, -2}, Parts(1), nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, "partition: a weight of -2"));
  EXPECT_THAT(LeastMaximum({1, 2}, Parts(0), nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 stages")));
  const MemoryLimit limit = {[](int, int) { return int64_t{1}; }, {5}};
  EXPECT_THAT(
      LeastMaximum({1, 2}, Parts(2), &limit),
      StatusIs(absl::StatusCode::kInvalidArgument, "partition: 1 memory limits for 2 stages"));
  for (const std::vector<int>& boundaries :
       {std::vector<int>{}, {0, 6}, {0, 3, 5}, {1, 3, 6}, {0, 3, 3, 6}, {0, 6, 6}, {0, 0, 6}}) {
    EXPECT_THAT(
        CheckPartition(boundaries, 6, Parts(2), nullptr),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("for 2 parts of 6 layers there are 3 ascending ones from 0 to 6")));
  }
}

TEST(PartitionTest, ChoicesAreReadAndWritten) {
  for (const char* const text : {"parameters", "flops", "time", "0,3,6", "0,1"}) {
    const auto choice = ParsePartition(text);
    ASSERT_OK(choice);
    EXPECT_EQ(ToString(*choice), text);
  }
  EXPECT_THAT(ParsePartition("0,3,6")->boundaries, ElementsAre(0, 3, 6));
  for (const char* const text :
       {"", "uniform", "0", "3", "1,3", "0,3,3", "0,3,2", "0,,3", "0,3,", "0,-1", "0,3x"}) {
    EXPECT_THAT(ParsePartition(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is none of parameters")))
        << text;
  }
}

}  // namespace
}  // namespace brigade::parallel
