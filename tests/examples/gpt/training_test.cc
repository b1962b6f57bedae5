// Whole trainings: the same bits in every stage, and what one rank in fp32 would have done.

#include "brigade/examples/gpt/training.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/policy.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "brigade/tests/testing/sanitizer.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

// Elements of a chunk of a file: small, so that there are several.
constexpr int64_t kChunk = 10'000;

class PrecisionTest : public ::testing::TestWithParam<std::string> {};
// The products of a type take minutes under a sanitizer, which sees the same in each.
std::vector<std::string> Precisions() {
  if (testing::kSanitizer) return {"fp16"};
  return {"fp32", "fp16", "bf16"};
}
INSTANTIATE_TEST_SUITE_P(All, PrecisionTest, ::testing::ValuesIn(Precisions()),
                         [](const auto& info) { return info.param; });

TEST_P(PrecisionTest, AllStagesTrainAlikeAndAsOneRankInFp32) {
  const Trained plain = Train(CreateJob(Config(8, 0, "fp32"), 1), 1);
  Trained first;
  for (int stage = 0; stage < zero::kStages; ++stage) {
    SCOPED_TRACE(stage);
    const Trained run = Train(CreateJob(Config(8, stage, GetParam()), 4), 4);
    ASSERT_EQ(run.losses.size(), static_cast<size_t>(kSteps));
    if (stage == 0) first = run;
    EXPECT_EQ(run.losses, first.losses);
    EXPECT_EQ(run.grad_norms, first.grad_norms);
    EXPECT_EQ(run.held_out, first.held_out);
    // The losses fall, and stay near the plain run's.
    EXPECT_NEAR(run.losses.front(), std::log(256.0), 0.2);
    EXPECT_LT(run.losses.back(), run.losses.front() - 1.0);
    for (size_t step = 0; step < run.losses.size(); ++step) {
      EXPECT_NEAR(run.losses[step], plain.losses[step], 0.02 * plain.losses[step]) << step;
    }
    ExpectModelledMemoryAndTraffic(run);
  }
}

// Four blocks, so that segments have several. Memory and traffic are those of the schedule: in
// stage 3 segments gather their weights once more.
TEST_P(PrecisionTest, WhatIsMadeAgainChangesMemoryAndTrafficAlone) {
  // Every stage without dropout, then with it.
  for (int round = 0; round < 2 * zero::kStages; ++round) {
    const int stage = round % zero::kStages;
    Job job = CreateJob(Config(8, stage, GetParam()), 2);
    job.model.layers = 4;
    job.steps = 6;
    job.config.dropout = round < zero::kStages ? 0 : 0.2;
    const Trained plain = Train(job, 2);
    ASSERT_EQ(plain.outcome.ranks.size(), 2u);
    ExpectModelledMemoryAndTraffic(plain, job.steps);
    const recompute::Chain chain = ActivationChain({job.model, 4, job.config.zero.dtype});
    const int64_t least = recompute::LeastBudget(chain).value();
    const int64_t most = recompute::PlanNone(chain)->peak_bytes;
    for (const std::string& policy :
         {std::string("block"), std::string("selective"), std::string("segments:2"),
          std::string("segments:4"), absl::StrCat("budget:", least),
          absl::StrCat("budget:", (least + most) / 2)}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, ", dropout ", job.config.dropout, ", ", policy));
      job.config.recompute = recompute::ParsePolicy(policy).value();
      const Trained run = Train(job, 2);
      ASSERT_EQ(run.outcome.ranks.size(), 2u);
      EXPECT_EQ(run.losses, plain.losses);
      EXPECT_EQ(run.grad_norms, plain.grad_norms);
      EXPECT_EQ(run.held_out, plain.held_out);
      ExpectModelledMemoryAndTraffic(run, job.steps);
      constexpr auto kActivations = static_cast<int>(device::Purpose::kActivations);
      EXPECT_LT(run.outcome.ranks[0].memory[kActivations],
                plain.outcome.ranks[0].memory[kActivations]);
      const bool gathers_again = stage == 3 && policy.substr(0, 8) == "segments";
      EXPECT_EQ(run.outcome.ranks[0].traffic.parameters > plain.outcome.ranks[0].traffic.parameters,
                gathers_again || (stage == 3 && policy == absl::StrCat("budget:", least)));
    }
  }
}

// Beside what is made again, and with gradients of several micro-batches.
TEST_P(PrecisionTest, WhereTheStateIsChangesMemoryAndMovementAlone) {
  constexpr auto kHost = device::Tier::kHost;
  for (int stage = 1; stage < zero::kStages; ++stage) {
    for (const int64_t micro_batches : {1, 2}) {
      Job job = CreateJob(Config(8, stage, GetParam()), 2);
      job.steps = 6;
      job.config.batch.gradient_accumulation_steps = micro_batches;
      job.config.batch.train_micro_batch_size_per_gpu = 4 / micro_batches;
      job.config.zero.micro_batches = static_cast<int>(micro_batches);
      job.config.dropout = micro_batches == 1 ? 0 : 0.1;
      // Buckets that the share cuts between.
      job.config.zero.bucket_elements = 4000;
      const Trained plain = Train(job, 2);
      for (const zero::OffloadOptions& offload :
           {zero::OffloadOptions{.optimizer_state = kHost},
            zero::OffloadOptions{.optimizer_state = kHost, .host_share = 0.3},
            zero::OffloadOptions{.optimizer_state = kHost, .parameters = kHost},
            zero::InFile(device::Tier::kDevice, kChunk),
            zero::InFile(device::Tier::kFile, kChunk)}) {
        job.config.zero.offload = offload;
        if (!zero::Validate(job.config.zero).ok()) continue;
        for (const char* const policy : {"none", "block"}) {
          SCOPED_TRACE(absl::StrCat("stage ", stage, ", ", micro_batches, " micro-batches, ",
                                    zero::ToString(offload), ", recompute ", policy));
          job.config.recompute = recompute::ParsePolicy(policy).value();
          const Trained run = Train(job, 2);
          EXPECT_EQ(run.losses, plain.losses);
          EXPECT_EQ(run.grad_norms, plain.grad_norms);
          EXPECT_EQ(run.held_out, plain.held_out);
          ExpectModelledMemoryAndTraffic(run, job.steps);
          constexpr auto kState = static_cast<int>(device::Purpose::kOptimizerState);
          const train::RankSummary &rank = run.outcome.ranks[0], &before = plain.outcome.ranks[0];
          EXPECT_LT(rank.memory[kState], before.memory[kState]);
          EXPECT_GT(rank.movement.from_host, 0);
          if (offload.host_share == 1) {
            EXPECT_EQ(rank.memory[kState], 0);
          }
        }
      }
      job.config.zero.offload = {};
      job.config.recompute = {};
    }
  }
}

// Where the inputs of blocks and segments are changes no bit, and no traffic.
TEST_P(PrecisionTest, AStashChangesMemoryAlone) {
  constexpr auto kActivations = static_cast<int>(device::Purpose::kActivations);
  for (int stage = 0; stage < zero::kStages; ++stage) {
    std::string config = Config(8, stage, GetParam());
    config.insert(1, R"("gradient_accumulation_steps": 2, )");
    Job job = CreateJob(config, 2);
    job.model.layers = 8;
    job.steps = 4;
    job.evaluate_every = 2;
    job.config.dropout = stage % 2 == 0 ? 0 : 0.1;
    const Trained plain = Train(job, 2);
    for (const char* const policy : {"block", "segments:2"}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, ", ", policy));
      job.config.recompute = recompute::ParsePolicy(policy).value();
      const Trained kept = Train(job, 2);
      ASSERT_FALSE(kept.outcome.ranks.empty());
      const train::RankSummary& b = kept.outcome.ranks[0];
      EXPECT_EQ(b.host_memory[kActivations], 0);
      for (const auto tier : {recompute::StashTier::kHost, recompute::StashTier::kFile}) {
        const bool in_file = tier == recompute::StashTier::kFile;
        job.config.recompute.stash = tier;
        // Beside what offload has there.
        if (stage == 3) {
          job.config.zero.offload.optimizer_state = job.config.zero.offload.parameters =
              in_file ? device::Tier::kFile : device::Tier::kHost;
        }
        if (in_file) job.config.zero.offload.file.directory = ::testing::TempDir();
        const Trained run = Train(job, 2);
        job.config.zero.offload = {};
        EXPECT_EQ(run.losses, plain.losses);
        EXPECT_EQ(run.grad_norms, plain.grad_norms);
        EXPECT_EQ(run.held_out, plain.held_out);
        ExpectModelledMemoryAndTraffic(run, job.steps);
        ASSERT_FALSE(run.outcome.ranks.empty());
        const train::RankSummary& a = run.outcome.ranks[0];
        EXPECT_GT(a.host_memory[kActivations], 0);
        const int64_t stashed = a.stashed_of_step.to_host;
        if (!in_file) {
          EXPECT_EQ(stashed, 2 * a.host_memory[kActivations]);
        }
        EXPECT_EQ(a.stashed_of_step.file_written, in_file ? stashed : 0);
        EXPECT_EQ(a.file_bytes > 0, in_file);
        EXPECT_LT(a.memory[kActivations], b.memory[kActivations]);
        EXPECT_EQ(a.traffic.parameters, b.traffic.parameters);
        EXPECT_EQ(a.activations.time, b.activations.time);
      }
      job.config.recompute.stash = recompute::StashTier::kNone;
    }
  }
}

// The point of offload.
TEST(TrainingTest, AStateOfTenTimesTheDevicesLimitTrainsFromTheHostAndFromFiles) {
  Job job = CreateJob(Config(1, 3, "bf16"), 1);
  job.model = {.layers = 48, .heads = 2, .width = 64, .context = 16};
  job.steps = 4;
  const Trained plain = Train(job, 1);
  job.device_limit_bytes = 16 * ParameterCount(job.model) / 10;
  train::History history;
  const std::atomic<bool> stop = false;
  EXPECT_THAT(TrainOnThreads(job, 1, {&history, nullptr, &stop}).status(),
              brigade::testing::StatusIs(
                  absl::StatusCode::kResourceExhausted,
                  ::testing::AllOf(::testing::HasSubstr("bytes of the device (weights "),
                                   ::testing::HasSubstr("--offload=all keeps weights and "
                                                        "optimizer state on the host"))));
  job.config.recompute = recompute::ParsePolicy("block").value();
  for (const zero::OffloadOptions& offload :
       {zero::OffloadOptions{.optimizer_state = device::Tier::kHost,
       .parameters = device::Tier::kHost},
        zero::InFile(device::Tier::kFile, kChunk)}) {
    job.config.zero.offload = offload;
    const Trained run = Train(job, 1);
    EXPECT_EQ(run.losses, plain.losses);
    EXPECT_EQ(run.grad_norms, plain.grad_norms);
    ExpectModelledMemoryAndTraffic(run, job.steps);
    ASSERT_FALSE(run.outcome.ranks.empty());
    const train::RankSummary& rank = run.outcome.ranks[0];
    EXPECT_EQ(rank.file_bytes > 0, offload.file_state());
    if (!offload.file_state()) continue;
    // The host has little of it as well.
    constexpr auto kState = static_cast<int>(device::Purpose::kOptimizerState);
    EXPECT_LT(rank.host_memory[kState] * 10, 12 * ParameterCount(job.model));
  }
}

// Another training, the same in every stage that has it, which learns as well.
TEST(TrainingTest, ADelayedUpdateIsItsOwnTrainingInEveryStage) {
  // With dropout, whose masks read the step: it is decided on the device, and never late.
  const auto create = [](int stage) {
    Job job = CreateJob(Config(8, stage, "bf16"), 2);
    job.config.dropout = 0.1;
    return job;
  };
  const Trained plain = Train(create(1), 2);
  Trained first;
  for (int stage = 1; stage < zero::kStages; ++stage) {
    for (const bool parameters : {false, true}) {
      Job job = create(stage);
      job.config.zero.offload = {
          .optimizer_state = device::Tier::kHost,
          .parameters = parameters ? device::Tier::kHost : device::Tier::kDevice,
          .delay_update = true,
          .delay_warm_up = 10};
      if (!zero::Validate(job.config.zero).ok()) continue;
      const Trained run = Train(job, 2);
      if (first.losses.empty()) first = run;
      EXPECT_EQ(run.losses, first.losses);
      EXPECT_EQ(run.grad_norms, first.grad_norms);
      ExpectModelledMemoryAndTraffic(run);
    }
  }
  ASSERT_EQ(first.losses.size(), plain.losses.size());
  // Weights miss an update for the first time in the twelfth step.
  const auto exact = plain.losses.begin() + 11;
  EXPECT_TRUE(std::equal(plain.losses.begin(), exact, first.losses.begin()));
  EXPECT_NE(first.losses[11], *exact);
  EXPECT_NEAR(first.losses.back(), plain.losses.back(), 0.05 * plain.losses.back());
}

TEST(TrainingTest, ABudgetThatIsTooSmallIsAnErrorThatNamesTheLeast) {
  Job job = CreateJob(Config(8, 1, "fp32"), 2);
  const int64_t least =
      recompute::LeastBudget(ActivationChain({job.model, 4, job.config.zero.dtype})).value();
  job.config.recompute = recompute::ParsePolicy(absl::StrCat("budget:", least - 1)).value();
  train::History history;
  const std::atomic<bool> stop = false;
  EXPECT_THAT(TrainOnThreads(job, 2, {&history, nullptr, &stop}).status(),
              brigade::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                         ::testing::HasSubstr(absl::StrCat("the least, ", least))));
}

// On two nodes, with gradients over a wire of 16 bits.
TEST(TrainingTest, AllStagesTrainAlikeByTheAlgorithmsOfNodes) {
  if (testing::kSanitizer) GTEST_SKIP() << "the threads of the other trainings, for long";
  const Trained plain = Train(CreateJob(Config(8, 0, "fp32"), 1), 1);
  for (const char* algorithm : {"hierarchical", "double_tree"}) {
    Trained first;
    for (int stage = 0; stage < zero::kStages; ++stage) {
      SCOPED_TRACE(absl::StrCat(algorithm, ", stage ", stage));
      const std::string config =
          absl::StrCat(R"({"train_batch_size": 8, "communication_data_type": "fp16", "brigade":)",
                       R"( {"algorithm": ")", algorithm,
                       R"(", "reduction": "fp32_partials", "ranks_per_node": 2}, )", kAdamW,
                       R"(, "zero_optimization": {"stage": )", stage, "}}");
      const Trained run = Train(CreateJob(config, 4), 4);
      ASSERT_EQ(run.losses.size(), static_cast<size_t>(kSteps));
      if (stage == 0) first = run;
      EXPECT_EQ(run.losses, first.losses);
      EXPECT_EQ(run.grad_norms, first.grad_norms);
      for (size_t step = 0; step < run.losses.size(); ++step) {
        EXPECT_NEAR(run.losses[step], plain.losses[step], 0.02 * plain.losses[step]) << step;
      }
      ExpectModelledMemoryAndTraffic(run);
    }
  }
}

TEST(TrainingTest, MicroBatchesOfSeveralRanksMakeTheSameBatch) {
  const std::string accumulating =
      absl::StrCat(R"({"train_batch_size": 8, "gradient_accumulation_steps": 2, )", kAdamW, "}");
  const Trained plain =
      Train(CreateJob(absl::StrCat(R"({"train_batch_size": 8, )", kAdamW, "}"), 1), 1);
  const Trained run = Train(CreateJob(accumulating, 2), 2);
  for (size_t step = 0; step < run.losses.size(); ++step) {
    EXPECT_NEAR(run.losses[step], plain.losses[step], 0.02 * plain.losses[step]) << step;
  }
}

// SGD is linear in the gradient, so that only rounding separates 4 ranks from 1. (Adam makes a step
// of full size of noise where the true gradient is zero.)
// With dropout too: ranks and micro-batches have their parts of one mask.
void ExpectThatManyAreOneUpToRounding(const std::string& precision, int ranks, int micro_batches,
                                      double dropout) {
  constexpr const char* kSgd =
      R"("optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}})";
  const auto train = [&](int size, int micro) {
    const std::string keys = absl::StrCat(R"("gradient_accumulation_steps": )", micro, ", ", kSgd);
    // Without clipping, which would hide a gradient of the wrong size.
    Job job = CreateJob(Config(8, 2, precision, keys, 0), size);
    job.config.dropout = dropout;
    return Train(job, size);
  };
  const Trained one = train(1, 1);
  const Trained four = train(ranks, micro_batches);
  ASSERT_EQ(four.losses.size(), one.losses.size());
  // Gradients are rounded to their type on each rank: relative errors of half a unit in the last
  // place, of random sign, that the weights collect over the steps, times the learning rate's 10 of
  // momentum; the loss moves by gradient times error of the weights.
  const double rounding = precision == "fp32" ? 0x1p-24 : precision == "fp16" ? 0x1p-11 : 0x1p-8;
  double moved = 0;  // bound of what the loss fell and may have fallen otherwise
  for (size_t step = 0; step < one.losses.size(); ++step) {
    moved += one.grad_norms[step] * one.grad_norms[step] * 0.1 * 10;
    EXPECT_NEAR(four.losses[step], one.losses[step], rounding * (moved + one.losses[step])) << step;
    EXPECT_NEAR(four.grad_norms[step], one.grad_norms[step],
                rounding * (moved + 4) * one.grad_norms[step])
        << step;
  }
  EXPECT_LT(one.losses.back(), one.losses.front() - 0.5);
}

TEST_P(PrecisionTest, WithSgdFourRanksAreOneRankUpToRounding) {
  ExpectThatManyAreOneUpToRounding(GetParam(), 4, 1, 0);
  ExpectThatManyAreOneUpToRounding(GetParam(), 4, 1, 0.1);
}

TEST_P(PrecisionTest, WithSgdMicroBatchesAreOneBatchUpToRounding) {
  ExpectThatManyAreOneUpToRounding(GetParam(), 2, 2, 0);
  ExpectThatManyAreOneUpToRounding(GetParam(), 2, 2, 0.1);
}

TEST(TrainingTest, EvaluationsDoNotDependOnHowTheTextIsDealtOut) {
  const std::string config = absl::StrCat(R"({"train_micro_batch_size_per_gpu": 5, )", kAdamW, "}");
  // 62 texts: 3 ranks with 5 at once have places left over. 1, 5 and 6 texts: ranks have none, or
  // one has one.
  for (const size_t texts : {62, 1, 5, 6}) {
    SCOPED_TRACE(texts);
    double wanted = 0;
    for (const int ranks : {1, 3}) {
      Job job = CreateJob(config, ranks);
      job.corpus.held_out.resize(texts * 32 + 1);
      job.steps = 1;
      train::History history;
      const std::atomic<bool> stop = false;
      ASSERT_OK(TrainOnThreads(job, ranks, {&history, nullptr, &stop}));
      const double loss = history.evaluations().front().held_out_loss;  // before the first step
      if (ranks == 1) wanted = loss;
      EXPECT_NEAR(loss, wanted, 1e-5);
      EXPECT_NEAR(loss, std::log(256.0),
                  0.5);  // and not several times that, of texts counted again
    }
  }
}

TEST(TrainingTest, EvaluationsInBetweenChangeNothing) {
  Job job = CreateJob(Config(8, 3, "fp16"), 4);
  const Trained without = Train(job, 4);
  EXPECT_EQ(without.evaluated, (std::vector<int64_t>{0, kSteps}));
  job.evaluate_every = 7;
  const Trained with = Train(job, 4);
  EXPECT_EQ(with.evaluated, (std::vector<int64_t>{0, 7, 14, 21, 28, kSteps}));
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_EQ(with.held_out, without.held_out);
  for (size_t rank = 0; rank < 4; ++rank) {
    const train::RankSummary &a = with.outcome.ranks[rank], &b = without.outcome.ranks[rank];
    EXPECT_EQ(a.traffic.parameters, b.traffic.parameters);
    EXPECT_EQ(a.traffic.gradients, b.traffic.gradients);
    EXPECT_EQ(a.traffic.scalars, b.traffic.scalars);
    EXPECT_EQ(a.steps, b.steps);
  }
}

TEST(TrainingTest, TheSameSeedGivesTheSameBits) {
  Job job = CreateJob(Config(8, 3, "fp16"), 2);
  const Trained first = Train(job, 2);
  EXPECT_EQ(Train(job, 2).losses, first.losses);
  job.seed = 2;
  EXPECT_NE(Train(job, 2).losses, first.losses);
}

TEST(TrainingTest, ALossScaleThatIsStuckEndsTheTraining) {
  const Job job = CreateJob(
      absl::StrCat(R"({"train_batch_size": 2, "fp16": {"enabled": true, "initial_scale_power": 40,
                       "hysteresis": 1, "min_loss_scale": 274877906944}, )",
                   kAdamW, "}"),
      2);
  const std::atomic<bool> stop = false;
  EXPECT_EQ(TrainOnThreads(job, 2, {nullptr, nullptr, &stop}).status(),
            absl::FailedPreconditionError("step 3: gradients overflow although the loss scale is "
                                          "at its minimum, 2.74878e+11"));
}

TEST(TrainingTest, TheWishToStopEndsAllRanksAfterTheSameStep) {
  class StopAt final : public train::Observer {
   public:
    explicit StopAt(std::atomic<bool>& stop) : stop_(stop) {}
    absl::Status OnStep(const train::StepMetrics& metrics) override {
      last = metrics.step;
      if (metrics.step == 5) stop_ = true;
      return absl::OkStatus();
    }
    absl::Status OnEvaluation(const train::Evaluation&) override { return absl::OkStatus(); }
    int64_t last = 0;

   private:
    std::atomic<bool>& stop_;
  };
  std::atomic<bool> stop = false;
  StopAt observer(stop);
  const auto outcome =
      TrainOnThreads(CreateJob(Config(8, 3, "bf16"), 4), 4, {&observer, nullptr, &stop});
  ASSERT_OK(outcome);
  EXPECT_TRUE(outcome->interrupted);
  EXPECT_LE(observer.last, 12);  // steps in flight when it was said, and when it was heard
  for (const train::RankSummary& rank : outcome->ranks) EXPECT_EQ(rank.steps, observer.last);
}

TEST(TrainingTest, AnObserversErrorEndsAllRanks) {
  class Refuse final : public train::Observer {
   public:
    absl::Status OnStep(const train::StepMetrics&) override {
      return absl::DataLossError("full disk");
    }
    absl::Status OnEvaluation(const train::Evaluation&) override { return absl::OkStatus(); }
  };
  Refuse observer;
  const std::atomic<bool> stop = false;
  EXPECT_EQ(
      TrainOnThreads(CreateJob(Config(8, 2, "fp32"), 4), 4, {&observer, nullptr, &stop}).status(),
      absl::DataLossError("full disk"));
}

}  // namespace
}  // namespace brigade::gpt
