#include "brigade/examples/gpt/report.h"

#include <limits>
#include <string>
#include <vector>

#include "brigade/examples/gpt/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

Job CreateJob(const char* config, int ranks) {
  Job job;
  job.model = {.layers = 1, .heads = 2, .width = 4, .context = 8};
  job.config = ParseConfig(config, ranks).value();
  job.corpus.description = "a text";
  job.steps = 4;
  return job;
}

constexpr const char* kFp16 =
    R"({"train_batch_size": 8, "gradient_accumulation_steps": 2, "fp16": {"enabled": true},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "zero_optimization": {"stage": 1}})";
constexpr const char* kFp32 =
    R"({"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": 3}})";

StepMetrics Step(int64_t step, double loss, bool skipped = false) {
  return {.step = step,
          .seconds = 0.5 * static_cast<double>(step),
          .loss = loss,
          .loss_scale = 1024,
          .skipped = skipped};
}

TEST(ReportTest, TheJobIsDescribed) {
  EXPECT_EQ(DescribeJob(CreateJob(kFp16, 2), "2 threads on cpu"),
            "GPT of 1 layer, width 4, 2 heads, context 8: 1308 parameters\n"
            "2 threads on cpu, ZeRO stage 1, float16 with dynamic loss scale, AdamW; 4 steps of 8 "
            "texts (2 micro-batches of 2 on each rank)\n"
            "Text: a text\n");
  Job with_dropout = CreateJob(kFp32, 2);
  with_dropout.config.dropout = 0.1;
  EXPECT_EQ(DescribeJob(with_dropout, "2 processes on cpu"),
            "GPT of 1 layer, width 4, 2 heads, context 8: 1308 parameters\n"
            "2 processes on cpu, ZeRO stage 3, float32, SGD, dropout 0.1; 4 steps of 2 "
            "texts (1 micro-batch of 1 on each rank)\n"
            "Text: a text\n");
}

TEST(ReportTest, ProgressIsNumbersAndACurve) {
  const std::vector<StepMetrics> steps = {Step(1, 5, true), Step(2, 4), Step(3, 2)};
  const std::vector<Evaluation> evaluations = {{0, 5}, {3, 2.25}};
  // 3 steps of 64 tokens in 1.5 s, each of 6 operations for each weight of a matrix product and 12
  // more for each position attended to, by layer and width: 6 * (192 + 1024) + 12 * 32.
  EXPECT_EQ(FlopsPerToken(CreateJob(kFp16, 2).model), 7680);
  EXPECT_EQ(ProgressReport(CreateJob(kFp16, 2), {2.5, 1.5}, steps, evaluations),
            "\n"
            "Report: 3 of 4 steps in 1.5 s (1 skipped for overflow), 128 tokens/s, 0.00 Gflop/s\n"
            "Training loss: 5.0000 at the first step, 2.0000 at the last; loss scale 1024\n"
            "Held out: 2.2500 nats per byte after 3 steps; a bigram model 2.5000, a trigram model "
            "1.5000\n"
            "\n"
            "  5.000 |o               *                                               \n"
            "  4.769 |                                                                \n"
            "  4.538 |                                                                \n"
            "  4.308 |                                                                \n"
            "  4.077 |                                *                               \n"
            "  3.846 |                                                                \n"
            "  3.615 |                                                                \n"
            "  3.385 |                                                                \n"
            "  3.154 |                                                                \n"
            "  2.923 |                                                                \n"
            "  2.692 |                                                                \n"
            "  2.462 |                                                                \n"
            "  2.231 |                                                o               \n"
            "  2.000 |                                                *               \n"
            "        +----------------------------------------------------------------\n"
            "         0                                                              3 steps   "
            "* training  o held out\n");
}

TEST(ReportTest, ACurveOfManyStepsIsOfMeans) {
  // A column of two steps has their mean; the first has step 1 alone, and one of its two is not
  // finite elsewhere.
  std::vector<StepMetrics> steps = {Step(1, 2)};
  for (int64_t step = 2; step < 128; ++step) steps.push_back(Step(step, 1 + 2 * (step % 2)));
  steps[99].loss = 2;
  steps[100].loss = std::numeric_limits<double>::quiet_NaN();
  const std::string report = ProgressReport(CreateJob(kFp16, 2), {}, steps, {});
  EXPECT_NE(report.find("  2.000 |" + std::string(64, '*') + "\n"), std::string::npos) << report;
}

TEST(ReportTest, WithoutAStepThereIsNothingToReport) {
  EXPECT_EQ(ProgressReport(CreateJob(kFp16, 2), {}, {}, std::vector<Evaluation>{{0, 5}}),
            "\nReport: no step was finished.\n");
}

// Two ranks whose every number is different.
std::vector<RankSummary> Summaries() {
  RankSummary first;
  for (int p = 0; p < device::kPurposes; ++p) {
    first.memory[p] = first.memory_model[p] = 1'000'000 * (p + 1);
  }
  first.traffic = {.gradients = 4'000'000, .parameters = 8'000'000, .scalars = 128};
  first.traffic_of_step = {.gradients = 1'000'000, .parameters = 2'000'000, .scalars = 32};
  first.parameters = ParameterCount(CreateJob(kFp16, 2).model);
  first.padded_bytes = 2'000'000;
  first.steps = 4;
  first.time = {.gemm = 5,
                .other_compute = 2,
                .optimizer = 1,
                .exposed_communication = 1.5,
                .idle = 0.5,
                .hidden_communication = 3};
  first.passes[PassPart::kForward] = 1;
  first.passes[PassPart::kRecompute] = 0.2;
  first.passes[PassPart::kRecomputeQkv] = 0.3;
  first.passes[PassPart::kBackward] = 2;
  RankSummary second = first;
  second.memory[0] += 1000;
  second.traffic.gradients += 400;
  second.time.gemm = 3;
  second.passes = {};
  second.passes[PassPart::kForward] = 2;
  second.passes[PassPart::kRecomputeAttention] = 1.7;
  second.passes[PassPart::kBackward] = 6;
  second.time.idle = 2.5;
  return {first, second};
}

TEST(ReportTest, ResourcesStandBesideTheirFormulas) {
  EXPECT_EQ(ResourceReport(CreateJob(kFp16, 2), Summaries()),
            R"(
Time of the steps, in seconds. gemm has attention and the conversions of 16-bit types,
communication the waiting for other ranks; hidden communication ran beside what the other
columns count.
    rank       gemm      other  optimizer    exposed       idle        all |     hidden
       0        5.0        2.0        1.0        1.5        0.5       10.0 |        3.0
       1        3.0        2.0        1.0        1.5        2.5       10.0 |        3.0
   share     40.0 %     20.0 %     10.0 %     15.0 %     15.0 %    100.0 % |     30.0 %
Hidden behind compute: 67 % of all communication
Passes, of all ranks: 3.000 s forward, 8.000 s backward

Memory at its peak, in MB (10^6 bytes)
)"
            "    rank      parameters       gradients optimizer_state     activations"
            "   communication         scratch        all\n"
            "       0           1.000           2.000           3.000           4.000"
            "           5.000           6.000     21.000\n"
            "       1           1.001           2.000           3.000           4.000"
            "           5.000           6.000     21.001\n"
            "   model           1.000           2.000           3.000           4.000"
            "           5.000           6.000     21.000\n"
            R"(The ZeRO paper's terms for stage 1, 4 Y + 12 Y / N: 0.013 MB

Sent in each step, in MB; Y is 2.000 MB of weights with padding
    rank    gradients      weights      scalars  in units of Y
       0     1.000000     2.000000     0.000032       1.500000
       1     1.000100     2.000000     0.000032       1.500050
 formula     1.000000     2.000000     0.000032       1.500000
2 (N-1)/N Y is 1.000000 Y; tied weights and several micro-batches add to it.
Not counted: 8 bytes a step, for the mean loss and the wish to stop.
)");
}

// In 2.2 of 11 seconds of passes.
TEST(ReportTest, WhatIsMadeAgainAndStashedStandsBesideThePlan) {
  Job job = CreateJob(kFp16, 2);
  EXPECT_THAT(ResourceReport(job, Summaries()),
              ::testing::Not(::testing::HasSubstr("Recomputation")));
  job.config.recompute = recompute::ParsePolicy("block").value();
  std::vector<RankSummary> ranks = Summaries();
  RankSummary& first = ranks[0];
  first.activation_bytes = 3'000'000;
  first.activation_bytes_without = 9'000'000;
  first.planned_time = 5;
  first.planned_time_without = 4;
  first.host_memory[static_cast<int>(device::Purpose::kActivations)] = 1'500'000;
  first.stashed = {8'000'000, 6'000'000, 10'000'000, 12'000'000};
  first.stashed_of_step = {2'000'000, 2'000'000, 3'000'000, 3'000'000};
  const std::string sizes =
      "\nRecomputation, block: a pass has 3.000 MB of activations instead of 9.000 MB, for 25.0 % ";
  const std::string measured =
      "6.000 MB are made again; that took 2.200 s on all ranks, 20.0 % of the passes' time without "
      "it\n";
  const std::string kept = sizes + "more operations\n" + measured;
  EXPECT_THAT(ResourceReport(job, ranks), ::testing::EndsWith(kept));
  job.config.recompute_times = RecomputeTimes::kMeasured;
  EXPECT_THAT(ResourceReport(job, ranks),
              ::testing::EndsWith(sizes + "more time by the trial\n" + measured));
  job.config.recompute_times = RecomputeTimes::kOperations;
  job.config.recompute.stash = recompute::StashTier::kHost;
  EXPECT_THAT(
      ResourceReport(job, ranks),
      ::testing::EndsWith(kept + "Stashed on the host, in 1.500 MB: 2.000 MB written and 1.500 MB "
                                 "read back in each step; by the plan 2.000 MB\n"));
  job.config.recompute.stash = recompute::StashTier::kFile;
  EXPECT_THAT(ResourceReport(job, ranks),
              ::testing::EndsWith(kept + "Stashed in a file, by way of the host's 1.500 MB: 3.000 "
                                         "MB written and 2.500 MB read back in each step; by the "
                                         "plan 3.000 MB\n"));
}

TEST(ReportTest, ThePapersTermsAreOfAdamIn16Bits) {
  const std::string report = ResourceReport(CreateJob(kFp32, 2), Summaries());
  EXPECT_EQ(report.find("paper"), std::string::npos) << report;
  EXPECT_NE(report.find("\n3 (N-1)/N Y is 1.500000 Y; tied"), std::string::npos) << report;
}

}  // namespace
}  // namespace brigade::gpt
