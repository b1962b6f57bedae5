// Trainings in replicas: memory and traffic are those of the formulas, all stages have the same
// bits, and the ends of the scale are what they are without replicas.

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

Job JobOf(int ranks, int stage, const std::string& precision, const std::string& brigade,
          const std::string& optimizer = kAdamW) {
  std::string config = Config(8, stage, precision, optimizer);
  config.pop_back();
  return CreateJob(absl::StrCat(config, ", \"brigade\": {", brigade, "}}"), ranks);
}

void ExpectModelled(const Trained& run, int64_t steps = kSteps) {
  ExpectModelledMemoryAndTraffic(run, steps);
  for (const train::RankSummary& rank : run.outcome.ranks) {
    EXPECT_EQ(rank.rounds_sent, rank.rounds_sent_model);
    EXPECT_EQ(rank.rounds_gathered, rank.rounds_gathered_model);
    EXPECT_GT(rank.rounds, 0);
  }
}

TEST(ReplicaTrainingTest, StagesHaveTheSameBits) {
  for (const char* const brigade :
       {R"("replicas": 2, "replica_period": 6)",
        R"("replicas": 2, "replica_period": 6, "replica_fragments": 2, "replica_delay": 1,
           "replica_mix": 0.5, "replica_wire": "bf16")",
        R"("replicas": 4, "replica_period": 5, "outer_lr": 1, "outer_momentum": 0,
           "replica_start_step": 7)"}) {
    SCOPED_TRACE(brigade);
    const Trained wanted = Train(JobOf(4, 0, "bf16", brigade), 4);
    ExpectModelled(wanted);
    EXPECT_LT(wanted.held_out, wanted.losses[0]);
    for (int stage = 1; stage < zero::kStages; ++stage) {
      SCOPED_TRACE(stage);
      Job job = JobOf(4, stage, "bf16", brigade);
      job.evaluate_every = 7;
      const Trained run = Train(job, 4);
      EXPECT_EQ(run.losses, wanted.losses);
      EXPECT_EQ(run.held_out, wanted.held_out);
      ExpectModelled(run);
    }
  }
}

// Each replica of groups that have a whole state each. Of one group it is what it is without.
TEST(ReplicaTrainingTest, GroupsInsideReplicasHaveTheSameBitsInEveryStage) {
  const std::string brigade = R"("replicas": 2, "replica_period": 6, "shard_ranks": )";
  struct Case {
    int ranks, shard_ranks;
  };
  for (const Case& c : {Case{4, 1}, Case{8, 2}}) {
    SCOPED_TRACE(absl::StrCat(c.ranks, " ranks, groups of ", c.shard_ranks));
    const std::string keys = absl::StrCat(brigade, c.shard_ranks);
    Trained wanted;
    for (const int stage : {0, 1, 2, 3}) {
      if (c.ranks == 8 && stage % 2 == 0) continue;
      SCOPED_TRACE(stage);
      const Trained run = Train(JobOf(c.ranks, stage, "bf16", keys), c.ranks);
      ExpectModelled(run);
      EXPECT_GT(run.outcome.ranks[0].traffic.between, 0);
      if (wanted.losses.empty()) wanted = run;
      EXPECT_EQ(run.losses, wanted.losses);
      EXPECT_EQ(run.held_out, wanted.held_out);
    }
    EXPECT_LT(wanted.held_out, wanted.losses[0]);
  }
  const Trained one_group = Train(JobOf(4, 2, "bf16", absl::StrCat(brigade, 2)), 4);
  ExpectModelled(one_group);
  const Trained plain = Train(JobOf(4, 2, "bf16", R"("replicas": 2, "replica_period": 6)"), 4);
  EXPECT_EQ(one_group.losses, plain.losses);
  EXPECT_EQ(one_group.held_out, plain.held_out);
}

// Saved by replicas of two groups, loaded by replicas of one, and the other way round: what a group
// has is in its replica's folder once.
TEST(ReplicaTrainingTest, CheckpointsGoBetweenGroupsAndOneState) {
  const std::string groups = R"("replicas": 2, "replica_period": 8, "shard_ranks": 1)";
  const std::string whole = R"("replicas": 2, "replica_period": 8)";
  for (const bool groups_save : {true, false}) {
    SCOPED_TRACE(groups_save);
    const std::string& saves = groups_save ? groups : whole;
    const std::string& loads = groups_save ? whole : groups;
    const std::string folder =
        absl::StrCat(::testing::TempDir(), "/groups", groups_save ? "_saved" : "_loaded");
    Job job = JobOf(4, 3, "bf16", saves);
    job.checkpoints = {.save = folder};
    job.steps = 21;
    Train(job, 4);
    std::vector<Trained> runs;
    for (const std::string& keys : {saves, loads}) {
      job = JobOf(4, 1, "bf16", keys);
      job.checkpoints = {.resume = folder};
      runs.push_back(Train(job, 4));
      ASSERT_EQ(runs.back().losses.size(), static_cast<size_t>(kSteps - 21));
    }
    // Of the same weights; sums of a group and between groups are rounded elsewhere.
    EXPECT_EQ(runs[0].losses[0], runs[1].losses[0]);
    EXPECT_NEAR(runs[0].held_out, runs[1].held_out, 0.01);
  }
}

// SGD inside, a round of the mean in each step: the same batches, and nearly the same sums.
TEST(ReplicaTrainingTest, AMeanBehindEachStepOfSgdIsDataParallelism) {
  const char* const sgd = R"("optimizer": {"type": "SGD", "params": {"lr": 0.1}})";
  Job job = JobOf(4, 2, "fp32", "", sgd);
  job.config.zero.max_grad_norm = std::numeric_limits<double>::infinity();
  const Trained in_parallel = Train(job, 4);
  job = JobOf(4, 2, "fp32",
              R"("replicas": 2, "replica_period": 1, "outer_lr": 1, "outer_momentum": 0)", sgd);
  job.config.zero.max_grad_norm = std::numeric_limits<double>::infinity();
  const Trained in_replicas = Train(job, 4);
  ExpectModelled(in_replicas);
  ASSERT_EQ(in_replicas.losses.size(), in_parallel.losses.size());
  for (size_t step = 0; step < in_parallel.losses.size(); ++step) {
    EXPECT_NEAR(in_replicas.losses[step], in_parallel.losses[step], 1e-4) << step;
  }
  EXPECT_NEAR(in_replicas.held_out, in_parallel.held_out, 1e-4);
}

// In the middle of a period, by replicas of as many ranks.
TEST(ReplicaTrainingTest, AResumedTrainingHasTheSameBits) {
  const std::string brigade = R"("replicas": 2, "replica_period": 8)";
  const Trained wanted = Train(JobOf(4, 2, "bf16", brigade), 4);
  const std::string folder = ::testing::TempDir() + "/resumed";
  Job job = JobOf(4, 2, "bf16", brigade);
  job.checkpoints = {.save = folder};
  job.steps = 21;
  Train(job, 4);
  EXPECT_TRUE(std::filesystem::exists(folder + "/replica-1"));
  job = JobOf(4, 3, "bf16", brigade);
  job.checkpoints = {.save = folder, .resume = folder};
  const Trained resumed = Train(job, 4);
  ASSERT_EQ(resumed.losses.size(), static_cast<size_t>(kSteps - 21));
  EXPECT_EQ(resumed.losses.back(), wanted.losses.back());
  EXPECT_EQ(resumed.held_out, wanted.held_out);
  // And as more replicas.
  job = JobOf(4, 1, "bf16", R"("replicas": 4, "replica_period": 8)");
  job.checkpoints = {.resume = folder};
  job.steps = kSteps + 8;
  const Trained more = Train(job, 4);
  EXPECT_EQ(more.losses.size(), 8u);
  EXPECT_LT(more.held_out, wanted.losses[0]);
}

}  // namespace
}  // namespace brigade::gpt
