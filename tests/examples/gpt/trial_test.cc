// What the trial measures, and that it changes nothing but the plan.

#include "brigade/examples/gpt/trial.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/policy.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/config.h"
#include "brigade/train/observers/history.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::Each;

Job CreateJob(const std::string& precision, int stage, int ranks) {
  Job job;
  job.model = {.layers = 4, .heads = 2, .width = 32, .context = 32};
  const std::string section =
      precision == "fp32" ? "" : absl::StrCat("\"", precision, "\": {\"enabled\": true}, ");
  job.config = train::ParseConfig(absl::StrCat(R"({"train_batch_size": 8, )", section,
                                               R"("optimizer": {"type": "AdamW"},
                                           "brigade": {"dropout": 0.1},
                                           "zero_optimization": {"stage": )",
                                               stage, "}}"),
                                  ranks)
                   .value();
  job.corpus = ReadLicences().value();
  job.corpus.held_out.resize(500);
  job.steps = 4;
  return job;
}

class TrialTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, TrialTest, ::testing::Values("fp32", "fp16", "bf16"),
                         [](const auto& info) { return info.param; });

TEST_P(TrialTest, EveryPartAndEveryOptionHasATime) {
  const Job job = CreateJob(GetParam(), 0, 1);
  train::Recorder recorder(nullptr);
  device::ContextOptions options;
  options.name = "rank 0";
  options.tracer = &recorder.tracer();
  auto context = device::Context::Create(options).value();
  auto compute = context->CreateStream("compute").value();
  const absl::StatusOr<PassCosts> costs =
      MeasurePasses(job, job.corpus, ShapeOf(job), {}, *context, *compute, recorder);
  ASSERT_OK(costs);
  for (const StageTimes& stage : {costs->embedding, costs->block, costs->head}) {
    EXPECT_GT(stage.forward, 0);
    EXPECT_GT(stage.backward, 0);
  }
  for (const double again :
       {costs->pointwise, costs->middle, costs->qkv, costs->expanded, costs->attention}) {
    EXPECT_GT(again, 0);
    EXPECT_LT(again, costs->block.forward);
  }
  const recompute::Chain chain = ActivationChain({job.model, 8, job.config.zero.dtype}, *costs);
  EXPECT_OK(recompute::Validate(chain));
  // All that it took is free again.
  for (int p = 0; p < device::kPurposes; ++p) {
    EXPECT_EQ(context->memory_stats().current_bytes(static_cast<device::Purpose>(p)), 0) << p;
  }
}

TEST(TrialErrorsTest, WithoutATracerThereAreNoTimes) {
  train::Recorder recorder(nullptr);
  auto context = device::Context::Create({}).value();
  auto compute = context->CreateStream("compute").value();
  const Job job = CreateJob("fp32", 0, 1);
  EXPECT_THAT(
      MeasurePasses(job, job.corpus, ShapeOf(job), {}, *context, *compute, recorder).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "the recorder has not seen the "
               "passes of the trial"));
}

// Costs by which the best plan for half of the memory depends on the rank that measured them: rank
// 0's has a GELU that takes longest, others' a product.
PassCosts CostsOf(int rank) {
  return {.embedding = {1, 1},
          .block = {100, 200},
          .head = {10, 20},
          .pointwise = rank == 0 ? 500.0 : 1.0,
          .middle = 1,
          .qkv = 10,
          .expanded = rank == 0 ? 1.0 : 90.0,
          .attention = 30};
}

TEST(AgreeOnCostsTest, AllRanksPlanByThoseOfRank0) {
  constexpr int kRanks = 3;
  const Job job = CreateJob("bf16", 3, kRanks - 1);
  const auto plan = [&](const PassCosts& costs) {
    const recompute::Chain chain = ActivationChain({job.model, 4, job.config.zero.dtype}, costs);
    return recompute::PlanBudget(chain, recompute::PlanNone(chain)->peak_bytes / 2)->operations;
  };
  ASSERT_NE(plan(CostsOf(0)), plan(CostsOf(1)));
  std::vector<std::vector<recompute::Operation>> plans(kRanks);
  collectives::OnThreads({.size = kRanks}, [&](collectives::Rank& self) {
    const absl::StatusOr<PassCosts> costs = AgreeOnCosts(CostsOf(self.rank), *self.communicator);
    ASSERT_OK(costs);
    plans[static_cast<size_t>(self.rank)] = plan(*costs);
    self.AwaitOthers();
  });
  EXPECT_THAT(plans, Each(plan(CostsOf(0))));
}

struct Trained {
  std::vector<double> losses, grad_norms;
  std::vector<train::RankSummary> ranks;
};

Trained Train(const Job& job, int ranks) {
  train::History history;
  const std::atomic<bool> stop = false;
  const absl::StatusOr<train::Outcome> outcome =
      TrainOnThreads(job, ranks, {&history, nullptr, &stop});
  EXPECT_OK(outcome);
  if (!outcome.ok()) return {};
  Trained run;
  run.ranks = outcome->ranks;
  for (const train::StepMetrics& step : history.steps()) {
    run.losses.push_back(step.loss);
    run.grad_norms.push_back(step.grad_norm);
  }
  return run;
}

// With dropout. Memory and traffic are those of the plan, and the books do not have the trial.
TEST_P(TrialTest, ATrialChangesThePlanAlone) {
  for (const int stage : {0, 3}) {
    Job job = CreateJob(GetParam(), stage, 2);
    const Trained plain = Train(job, 2);
    ASSERT_EQ(plain.ranks.size(), 2u);
    const recompute::Chain chain = ActivationChain({job.model, 4, job.config.zero.dtype});
    const int64_t half = recompute::PlanNone(chain)->peak_bytes / 2;
    SCOPED_TRACE(absl::StrCat("stage ", stage));
    job.config.recompute = {.kind = recompute::Policy::Kind::kBudget, .budget_bytes = half};
    job.config.recompute_times = train::RecomputeTimes::kOperations;
    const Trained counted = Train(job, 2);
    job.config.recompute_times = train::RecomputeTimes::kMeasured;
    const Trained measured = Train(job, 2);
    EXPECT_EQ(measured.losses, plain.losses);
    EXPECT_EQ(measured.grad_norms, plain.grad_norms);
    EXPECT_EQ(measured.losses, counted.losses);
    ASSERT_EQ(measured.ranks.size(), 2u);
    for (const train::RankSummary& rank : measured.ranks) {
      // Seconds, and those of rank 0.
      EXPECT_LT(rank.activations.time, 60);
      EXPECT_EQ(rank.activations.time, measured.ranks[0].activations.time);
      EXPECT_GT(rank.activations.time, rank.activations.time_without);
      EXPECT_GT(rank.activations.time_without, 0);
      EXPECT_EQ(rank.activations.bytes, measured.ranks[0].activations.bytes);
      for (int p = 0; p < device::kPurposes; ++p) {
        EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
      }
      EXPECT_EQ(rank.traffic.parameters, job.steps * rank.traffic_of_step.parameters);
      // The passes of the steps, not those of the trial, whose time is in none of the columns.
      EXPECT_GT(rank.passes.recompute(), 0);
      EXPECT_GT(rank.passes[train::PassPart::kBackward], 0);
      EXPECT_LE(rank.passes.once() + rank.passes.recompute(),
                rank.time.gemm + rank.time.other_compute + 1e-6);
    }
    EXPECT_EQ(plain.ranks[0].passes.recompute(), 0);
    EXPECT_GT(plain.ranks[0].passes[train::PassPart::kForward], 0);
    EXPECT_GT(counted.ranks[0].activations.time, 1e6);
  }
}

}  // namespace
}  // namespace brigade::gpt
