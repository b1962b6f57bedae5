#include "brigade/parallel/plan/search.h"

#include <limits>
#include <numeric>
#include <utility>

#include "brigade/parallel/plan/frontier_svg.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::StatusIs;

Machine SmallNodes() {
  Machine machine;
  machine.device = {.name = "d",
                    .peak_flops = 1e14,
                    .product_efficiency = 0.7,
                    .memory_bytes = 40e9,
                    .memory_bytes_per_s = 1e12};
  machine.ranks_per_node = 4;
  machine.topology.inside = {3e-6, 100e9, 1};
  machine.topology.between = {20e-6, 10e9, 4};
  return machine;
}

const Transformer kModel = {
    .name = "toy", .layers = 12, .width = 1536, .heads = 12, .context = 1024, .vocabulary = 50304};

int64_t Sum(const std::vector<std::pair<std::string, int64_t>>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0},
                         [](int64_t sum, const auto& each) { return sum + each.second; });
}

// Loops over all numbers there are, without asking what divides.
TEST(SearchTest, FindsTheBestOfAll) {
  const Machine machine = SmallNodes();
  Execution execution;
  execution.batch = 24;
  execution.fused_attention = false;
  SearchSpace space;
  space.ranks = 12;
  space.largest_micro_batch = 4;
  space.most_chunks = 3;
  space.memory_bytes = 3e9;
  MemoryModel memory(kModel, execution);
  CostModel cost(kModel, machine, execution);
  std::vector<ScheduleChoice> schedules;
  for (const char* name : {"1f1b", "gpipe", "zb-h1", "zb-v", "interleaved:2", "interleaved:3"}) {
    schedules.push_back(*ParseSchedule(name));
  }
  size_t fitting = 0, with_groups = 0;
  Candidate best;
  double least = std::numeric_limits<double>::infinity();
  Configuration each;
  for (int code = 0; code < 12 * 12 * 12; ++code) {
    const int t = code % 12 + 1, c = code / 12 % 12 + 1, p = code / 144 + 1;
    if (12 % (t * c * p) != 0) continue;
    each.grid = {t, c, 12 / (t * c * p), p};
    for (each.micro_batch = 1; each.micro_batch <= 4; each.micro_batch *= 2) {
      for (const ScheduleChoice& schedule : schedules) {
        if (p == 1 && schedule.kind != ScheduleKind::kOneForwardOneBackward) continue;
        each.schedule = schedule;
        for (each.zero_stage = 0; each.zero_stage < 4; ++each.zero_stage) {
          const int sharers = each.grid.data * c;
          if (each.zero_stage > 0 && sharers == 1) continue;
          for (const Recomputation recomputation : kRecomputations) {
            each.recomputation = recomputation;
            // 0: all of them; groups of one are stage 0.
            for (each.shard_ranks = 0; each.shard_ranks < sharers; ++each.shard_ranks) {
              if (each.shard_ranks == 1 || (each.shard_ranks > 1 && each.zero_stage == 0)) continue;
              if (!Validate(each, kModel, execution).ok()) continue;
              const auto use = memory.MemoryOf(each);
              ASSERT_OK(use);
              if (use->total() > 3e9) continue;
              ++fitting;
              with_groups += each.shard_ranks > 0 ? 1 : 0;
              const StepTime time = cost.TimeOf(each, *memory.ZeroOf(each, p > 1));
              // Of equals the one with less memory.
              if (std::pair(time.total(), use->total()) >= std::pair(least, best.memory.total())) {
                continue;
              }
              least = time.total();
              best = {each, *use, time};
            }
          }
        }
      }
    }
  }
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(kModel, machine, execution, space));
  EXPECT_EQ(result.candidates.size(), fitting);
  EXPECT_GT(fitting, 100u);
  EXPECT_GT(with_groups, 100u);
  EXPECT_EQ(result.candidates.front().time.total(), least);
  EXPECT_EQ(result.candidates.front().configuration, best.configuration)
      << ToString(result.candidates.front().configuration) << "; " << ToString(best.configuration);
  EXPECT_EQ(Sum(result.left_out) + static_cast<int64_t>(fitting), result.configurations);
  EXPECT_GT(result.least_memory_left_out, 3e9);
}

// Between nodes that a slow link connects: of one stage, whose ranks have all of the model.
TEST(SearchTest, FindsTheBestOfAllReplicasAndGroups) {
  Machine machine = SmallNodes();
  machine.topology.between = {1e-3, 1e8, 1};
  Execution execution;
  execution.batch = 24;
  SearchSpace space;
  space.ranks = 24;
  space.tensor = space.context = space.pipeline = 1;
  space.micro_batch = 1;
  for (const int64_t period : {1, 4, 100}) {
    for (const double memory_bytes : {2.5e9, 4e9, 40e9}) {
      execution.replica_period = period;
      space.memory_bytes = memory_bytes;
      MemoryModel memory(kModel, execution);
      CostModel cost(kModel, machine, execution);
      Candidate best;
      double least = std::numeric_limits<double>::infinity();
      size_t fitting = 0;
      Configuration each;
      each.grid.data = 24;
      for (each.replicas = 1; each.replicas <= 24; ++each.replicas) {
        const int sharers = 24 / each.replicas;
        for (each.zero_stage = 0; each.zero_stage < 4; ++each.zero_stage) {
          if (each.zero_stage > 0 && sharers == 1) continue;
          for (each.shard_ranks = 0; each.shard_ranks < sharers; ++each.shard_ranks) {
            if (each.shard_ranks == 1 || (each.shard_ranks > 1 && each.zero_stage == 0)) continue;
            if (!Validate(each, kModel, execution).ok()) continue;
            for (const auto recomputation : {Recomputation::kNone, Recomputation::kFull}) {
              each.recomputation = recomputation;
              ASSERT_OK_AND_ASSIGN(const MemoryUse use, memory.MemoryOf(each));
              if (use.total() > memory_bytes) continue;
              ++fitting;
              const StepTime time = cost.TimeOf(each, *memory.ZeroOf(each, false));
              if (std::pair(time.total(), use.total()) >= std::pair(least, best.memory.total())) {
                continue;
              }
              least = time.total();
              best = {each, use, time};
            }
          }
        }
      }
      ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(kModel, machine, execution, space));
      EXPECT_EQ(result.candidates.size(), fitting);
      EXPECT_EQ(Sum(result.left_out) + static_cast<int64_t>(fitting), result.configurations);
      const Candidate& found = result.candidates.front();
      EXPECT_EQ(found.time.total(), least);
      EXPECT_EQ(found.configuration, best.configuration)
          << ToString(found.configuration) << "; " << ToString(best.configuration);
      // Rounds in every step send more than gradients; rarely enough they are nearly nothing.
      if (period == 1) {
        EXPECT_EQ(found.configuration.replicas, 1);
      }
      if (period == 100 && memory_bytes == 40e9) {
        EXPECT_GT(found.configuration.replicas, 1) << ToString(found.configuration);
      }
    }
  }
}

// The same of all grids: others than those of one stage have no replicas.
TEST(SearchTest, HasReplicasOnlyOfRanksWithTheWholeModel) {
  Execution execution;
  execution.batch = 32;
  execution.replica_period = 10;
  SearchSpace space;
  space.ranks = 16;
  ASSERT_OK_AND_ASSIGN(SearchResult result, Search(kModel, SmallNodes(), execution, space));
  int64_t with_replicas = 0;
  for (const Candidate& each : result.candidates) {
    with_replicas += each.configuration.replicas > 1 ? 1 : 0;
    EXPECT_TRUE(each.configuration.replicas == 1 || each.configuration.grid.data == 16);
  }
  EXPECT_GT(with_replicas, 0);
  space.replicas = 4;
  space.shard_ranks = 2;
  ASSERT_OK_AND_ASSIGN(result, Search(kModel, SmallNodes(), execution, space));
  for (const Candidate& each : result.candidates) {
    EXPECT_THAT(ToString(each.configuration), ::testing::EndsWith(", 4 replicas, groups of 2"));
  }
  EXPECT_THAT(result.left_out,
              ::testing::Contains(::testing::Pair(
                  "replicas of ranks that have parts of a model, or of texts", ::testing::Gt(0))));
  execution.replica_period = 0;
  EXPECT_THAT(Search(kModel, SmallNodes(), execution, space),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "4 replicas without the steps between two of their rounds"));
}

TEST(SearchTest, HasAFrontierThatNothingBeats) {
  Execution execution;
  execution.batch = 32;
  SearchSpace space;
  space.ranks = 16;
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(kModel, SmallNodes(), execution, space));
  ASSERT_GT(result.frontier.size(), 2u);
  EXPECT_EQ(result.frontier.back().configuration, result.candidates.front().configuration);
  for (size_t i = 1; i < result.frontier.size(); ++i) {
    ASSERT_LT(result.frontier[i - 1].memory.total(), result.frontier[i].memory.total());
    ASSERT_GT(result.frontier[i - 1].time.total(), result.frontier[i].time.total());
  }
  for (const Candidate& candidate : result.candidates) {
    for (const Candidate& of_frontier : result.frontier) {
      ASSERT_FALSE(candidate.memory.total() < of_frontier.memory.total() &&
                   candidate.time.total() < of_frontier.time.total());
    }
  }
}

// What a search over so many ranks evaluates is what it takes: some tenths of a second.
TEST(SearchTest, LooksAtABoundedNumberOfConfigurationsForManyRanks) {
  Execution execution;
  execution.batch = 8192;
  SearchSpace space;
  space.ranks = 16384;
  space.memory_bytes = 76e9;
  Machine machine = SmallNodes();
  machine.device.memory_bytes = 80e9;
  machine.ranks_per_node = 8;
  ASSERT_OK_AND_ASSIGN(const SearchResult result,
                       Search(*TransformerByName("gpt-1t"), machine, execution, space));
  EXPECT_EQ(result.grids, 680);
  EXPECT_EQ(Sum(result.left_out) + static_cast<int64_t>(result.candidates.size()),
            result.configurations);
  int64_t pruned = 0;
  for (const auto& [reason, count] : result.left_out) {
    if (reason == "share a state with fewer ranks than others that do not fit") pruned = count;
  }
  EXPECT_GT(pruned, 100000);
  EXPECT_LT(result.configurations - pruned, 500000);
  EXPECT_GT(result.candidates.size(), 1000u);
}

TEST(SearchTest, KeepsToWhatIsFixed) {
  Execution execution;
  execution.batch = 32;
  SearchSpace space;
  space.ranks = 16;
  space.tensor = 2;
  space.pipeline = 4;
  space.zero_stage = 1;
  space.micro_batch = 2;
  space.recomputation = Recomputation::kFull;
  space.schedules = {{ScheduleKind::kZeroBubbleH1, 1}};
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(kModel, SmallNodes(), execution, space));
  for (const Candidate& each : result.candidates) {
    EXPECT_THAT(ToString(each.configuration), HasSubstr("t 2, c "));
    EXPECT_THAT(ToString(each.configuration),
                HasSubstr("p 4, zb-h1, ZeRO 1, recompute full, micro-batch 2"));
  }
}

TEST(SearchTest, SaysWhyNothingFits) {
  SearchSpace space;
  space.ranks = 2;
  space.memory_bytes = 1e6;
  EXPECT_THAT(Search(kModel, SmallNodes(), {}, space),
              StatusIs(absl::StatusCode::kNotFound,
                       ::testing::AllOf(HasSubstr("nothing fits on 2 ranks: of 4 grids"),
                                        HasSubstr("do not fit in memory"),
                                        HasSubstr("GB a rank, there are 0.001"))));
}

TEST(SearchTest, RefusesNumbersThatDoNotFit) {
  SearchSpace space;
  const auto refuses = [&](const char* text) {
    EXPECT_THAT(Validate(space), StatusIs(absl::StatusCode::kInvalidArgument, text));
    space = {};
  };
  space.ranks = 0;
  refuses("the number of ranks is 0; it must be 1 to 32768");
  space.ranks = 8;
  space.tensor = 3;
  refuses("the tensor extent 3 does not divide 8 ranks");
  space.zero_stage = 4;
  refuses("the ZeRO stage is 4; it must be 0 to 3");
  space.micro_batch = 3;
  refuses("the micro-batch is 3; it must be a power of two, 1 to 16");
  space.ranks = 8;
  space.replicas = 3;
  refuses("3 replicas do not divide 8 ranks");
  space.shard_ranks = 2;
  refuses("the ranks that share a state are 2; they must be 0 to 1");
  Execution execution;
  execution.replica_period = -1;
  EXPECT_THAT(Validate(execution), StatusIs(absl::StatusCode::kInvalidArgument,
                                            "the period of replicas is -1 steps; it must be 0 or "
                                            "more"));
  execution = {.round_bytes = 3};
  EXPECT_THAT(Validate(execution), StatusIs(absl::StatusCode::kInvalidArgument,
                                            "rounds have 3 bytes; they must have 2 or 4"));
  execution = {};
  execution.batch = 0;
  EXPECT_THAT(Validate(execution), StatusIs(absl::StatusCode::kInvalidArgument,
                                            "the batch is 0; it must be 1 to 1048576"));
}

TEST(ConfigurationTest, NamesWhatDoesNotDivide) {
  Execution execution;
  execution.batch = 24;
  const auto refuses = [&](const Configuration& configuration, const char* text) {
    EXPECT_THAT(Validate(configuration, kModel, execution),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refuses({.grid = {.tensor = 5}}, "5 tensor ranks do not divide 12 heads");
  refuses({.grid = {.context = 3}}, "3 context ranks do not divide a context of 1024");
  refuses({.grid = {.pipeline = 15}}, "15 stages of 1 chunks are more than 12 layers");
  refuses({.grid = {.data = 5}}, "micro-batches of 1 on 5 data ranks do not divide a batch of 24");
  refuses({.grid = {.pipeline = 5}, .schedule = {ScheduleKind::kInterleaved, 2}},
          "interleaved:2 takes micro-batches in groups of 5");
  refuses({.grid = {.data = 8}, .replicas = 2}, "2 replicas without the steps between two of");
  execution.replica_period = 10;
  refuses({.grid = {.data = 8}, .replicas = 3}, "3 replicas do not divide 8 data ranks");
  refuses({.grid = {.tensor = 2, .data = 8}, .replicas = 2}, "each of 2 replicas needs ranks with");
  refuses({.grid = {.data = 8}, .replicas = 2, .shard_ranks = 8},
          "groups of 8 do not divide 4 ranks with the same weights");
  execution.context_method = ContextMethod::kUlysses;
  refuses({.grid = {.context = 8}}, "8 context ranks do not divide the 12 heads");
}

TEST(FrontierSvgTest, DrawsTheFrontierAndTheEndOfMemory) {
  Execution execution;
  execution.batch = 32;
  SearchSpace space;
  space.ranks = 16;
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(kModel, SmallNodes(), execution, space));
  const std::string svg = FrontierSvg(result, 40e9, "a < b & c");
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, HasSubstr("memory of a rank"));
  EXPECT_THAT(svg, HasSubstr(ToString(result.candidates.front().configuration)));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_EQ(svg, FrontierSvg(result, 40e9, "a < b & c"));
  EXPECT_THAT(FrontierSvg(result, std::numeric_limits<double>::infinity(), ""),
              Not(HasSubstr("memory of a rank")));
}

}  // namespace
}  // namespace brigade::parallel
