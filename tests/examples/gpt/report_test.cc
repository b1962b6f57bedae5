#include "brigade/examples/gpt/report.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/examples/gpt/pipeline_report.h"
#include "brigade/parallel/pipeline/stage_range.h"
#include "brigade/train/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

Job CreateJob(const char* config, int ranks) {
  Job job;
  job.model = {.layers = 1, .heads = 2, .width = 4, .context = 8};
  job.config = train::ParseConfig(config, ranks).value();
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

train::StepMetrics Step(int64_t step, double loss, bool skipped = false) {
  return {.step = step,
          .seconds = 0.5 * static_cast<double>(step),
          .loss = loss,
          .loss_scale = 1024,
          .skipped = skipped};
}

TEST(ReportTest, TheJobIsDescribed) {
  EXPECT_EQ(DescribeJob(CreateJob(kFp16, 2), "2 threads on cpu"),
            "GPT of 1 layer, width 4, 2 heads, context 8: 1308 parameters\n"
            "2 threads on cpu, ZeRO stage 1, fp16 with dynamic loss scale, AdamW; 4 steps of 8 "
            "texts (2 micro-batches of 2 on each rank)\n"
            "Text: a text\n");
  Job with_dropout = CreateJob(kFp32, 2);
  with_dropout.config.dropout = 0.1;
  EXPECT_EQ(DescribeJob(with_dropout, "2 processes on cpu"),
            "GPT of 1 layer, width 4, 2 heads, context 8: 1308 parameters\n"
            "2 processes on cpu, ZeRO stage 3, fp32, SGD, dropout 0.1; 4 steps of 2 "
            "texts (1 micro-batch of 1 on each rank)\n"
            "Text: a text\n");
}

TEST(ReportTest, ProgressIsNumbersAndACurve) {
  const std::vector<train::StepMetrics> steps = {Step(1, 5, true), Step(2, 4), Step(3, 2)};
  const std::vector<train::Evaluation> evaluations = {{0, 5}, {3, 2.25}};
  // 3 steps of 64 tokens in 1.5 s, each of 6 operations for each weight of a matrix product and 12
  // more for each position attended to, by layer and width: 6 * (192 + 1024) + 12 * 32.
  EXPECT_EQ(FlopsPerToken(CreateJob(kFp16, 2).model), 7680);
  EXPECT_EQ(ProgressReport(CreateJob(kFp16, 2), {2.5, 1.5}, steps, evaluations),
            "\n"
            "Report: 3 of 4 steps in 1.5 s (1 skipped for overflow), 128 bytes/s, 0.00 Gflop/s\n"
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
  std::vector<train::StepMetrics> steps = {Step(1, 2)};
  for (int64_t step = 2; step < 128; ++step) steps.push_back(Step(step, 1 + 2 * (step % 2)));
  steps[99].loss = 2;
  steps[100].loss = std::numeric_limits<double>::quiet_NaN();
  const std::string report = ProgressReport(CreateJob(kFp16, 2), {}, steps, {});
  EXPECT_NE(report.find("  2.000 |" + std::string(64, '*') + "\n"), std::string::npos) << report;
}

TEST(ReportTest, WithoutAStepThereIsNothingToReport) {
  EXPECT_EQ(ProgressReport(CreateJob(kFp16, 2), {}, {}, std::vector<train::Evaluation>{{0, 5}}),
            "\nReport: no step was finished.\n");
}

// Two ranks whose every number is different.
std::vector<train::RankSummary> Summaries() {
  train::RankSummary first;
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
  first.passes[train::PassPart::kForward] = 1;
  first.passes[train::PassPart::kRecompute] = 0.2;
  first.passes[train::PassPart::kRecomputeQkv] = 0.3;
  first.passes[train::PassPart::kBackward] = 2;
  train::RankSummary second = first;
  second.memory[0] += 1000;
  second.traffic.gradients += 400;
  second.time.gemm = 3;
  second.passes = {};
  second.passes[train::PassPart::kForward] = 2;
  second.passes[train::PassPart::kRecomputeAttention] = 1.7;
  second.passes[train::PassPart::kBackward] = 6;
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
  std::vector<train::RankSummary> ranks = Summaries();
  train::RankSummary& first = ranks[0];
  first.activations.bytes = 3'000'000;
  first.activations.bytes_without = 9'000'000;
  first.activations.time = 5;
  first.activations.time_without = 4;
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
  job.config.recompute_times = train::RecomputeTimes::kMeasured;
  EXPECT_THAT(ResourceReport(job, ranks),
              ::testing::EndsWith(sizes + "more time by the trial\n" + measured));
  job.config.recompute_times = train::RecomputeTimes::kOperations;
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

// A job of 4 stages and 8 micro-batches on 8 ranks: pairs of data ranks are stages. The steps
// took kWall seconds each.
constexpr double kWall = 36;
Job PipelineJob(const std::string& schedule) {
  Job job = CreateJob(absl::StrCat(R"({"train_micro_batch_size_per_gpu": 1,
      "gradient_accumulation_steps": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
      "pipeline": {"stages": 4}, "brigade": {"partition": "flops", "schedule": ")",
                                   schedule, "\"}}")
                          .c_str(),
                      8);
  job.model.layers = 4;
  return job;
}

// `forward` of each stage, and twice that backward: of the slower of two ranks.
std::vector<train::RankSummary> PipelineSummaries(const std::vector<double>& forward, bool splits) {
  std::vector<train::RankSummary> ranks;
  constexpr int kBoundaries[] = {0, 2, 3, 4, 6};
  for (size_t stage = 0; stage < forward.size(); ++stage) {
    for (const double slowness : {0.5, 1.0}) {
      train::RankSummary& rank = ranks.emplace_back(Summaries()[0]);
      rank.time = {.gemm = 4 * kWall - 1, .idle = 1};
      const double time = slowness * forward[stage];
      rank.chunks[0] = {.stages = {kBoundaries[stage], kBoundaries[stage + 1]},
                        .forward = time,
                        .backward_input = splits ? time : 2 * time,
                        .backward_weight = splits ? time : 0};
    }
  }
  return ranks;
}

// 8 micro-batches of 1 + 2 are 24; 1F1B adds (p - 1) (1 + 2) = 9 to that.
TEST(ReportTest, APipelinesStepStandsBesideItsSimulation) {
  EXPECT_EQ(PipelineReport(PipelineJob("1f1b"), PipelineSummaries({1, 1, 1, 1}, false)), R"(
Pipeline, 1f1b: 4 stages with 1 part of the model each, by flops; 8 micro-batches
Seconds of a micro-batch's passes, without waits and exchanges, on the rank of each stage that
computes longest
    part    stage     rank      forward     backward  layers
       0        0        1     1.000000     2.000000  embedding to h.0
       1        1        3     1.000000     2.000000  h.1
       2        2        5     1.000000     2.000000  h.2
       3        3        7     1.000000     2.000000  h.3 to head
   stage     computes   of a step
       0    24.000000      66.7 %
       1    24.000000      66.7 %
       2    24.000000      66.7 %
       3    24.000000      66.7 %
                    step       bubble of the work
  simulated    33.000000     9.000000      37.5 %
   measured    36.000000    12.000000      50.0 %
closed form    33.000000     9.000000      37.5 %
Simulated without transfers; measured with them, with the norm and the update. The closed form
is of stages that are all alike.
)");
}

// ZB-H1 has a third of that bubble: (p - 1) (f + b - w).
TEST(ReportTest, ASplitBackwardPassHasTwoColumns) {
  const std::string report =
      PipelineReport(PipelineJob("zb-h1"), PipelineSummaries({1, 1, 1, 1}, true));
  EXPECT_THAT(report, ::testing::HasSubstr("     rank      forward       inputs      weights  "
                                           "layers\n       0        0        1     1.000000     "
                                           "1.000000     1.000000  embedding to h.0\n"));
  EXPECT_THAT(report, ::testing::HasSubstr("simulated    27.000000     3.000000      12.5 %\n"));
  EXPECT_THAT(report, ::testing::HasSubstr("closed form    27.000000     3.000000      12.5 %\n"));
}

// Known: f = 1 2 1 1, b = 2 f takes 53 by 1F1B and 57 by GPipe, of which stage 1 computes 48. Of
// the mean stage, 1.25 and 2.5, 8 micro-batches take 30 and the bubble 11.25.
TEST(ReportTest, StagesThatDifferAreSimulatedAsTheyAre) {
  for (const auto& [schedule, step] : {std::pair("1f1b", 53), std::pair("gpipe", 57)}) {
    const std::string report =
        PipelineReport(PipelineJob(schedule), PipelineSummaries({1, 2, 1, 1}, false));
    EXPECT_THAT(report, ::testing::HasSubstr(absl::StrFormat(
                            "  simulated %12.6f %12.6f", static_cast<double>(step), step - 48.0)));
    EXPECT_THAT(report, ::testing::HasSubstr("closed form    41.250000    11.250000      37.5 %"));
    EXPECT_THAT(report, ::testing::HasSubstr("       1    48.000000     133.3 %\n"));
  }
}

// Two stages with two chunks of 1 + 2, 4 micro-batches: 27 of 24.
TEST(ReportTest, ChunksAreSimulatedAsParts) {
  Job job = CreateJob(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
      "optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "pipeline": {"stages": 2},
      "brigade": {"schedule": "interleaved:2"}})",
                      2);
  job.model.layers = 2;
  std::vector<train::RankSummary> ranks(2);
  for (int stage = 0; stage < 2; ++stage) {
    for (int chunk = 0; chunk < 2; ++chunk) {
      const int part = 2 * chunk + stage;
      ranks[static_cast<size_t>(stage)].chunks[static_cast<size_t>(chunk)] = {
          {part, part + 1}, 1, 2};
    }
  }
  const std::string report = PipelineReport(job, ranks);
  EXPECT_THAT(report,
              ::testing::HasSubstr("2 stages with 2 parts of the model each, by parameters"));
  EXPECT_THAT(report, ::testing::HasSubstr("       2        0        0     1.000000     2.000000  "
                                           "h.1\n"));
  EXPECT_THAT(report, ::testing::HasSubstr("simulated    27.000000     3.000000      12.5 %\n"));
  EXPECT_THAT(report, ::testing::HasSubstr("closed form    27.000000     3.000000      12.5 %\n"));
  // Without a trace nothing was measured.
  EXPECT_THAT(report, ::testing::Not(::testing::HasSubstr("   measured ")));
  ranks[1].chunks = {};
  const std::string without = PipelineReport(job, ranks);
  EXPECT_THAT(without, ::testing::EndsWith("  ?\nSome stage's passes were not recorded: no step is "
                                           "simulated.\n"));
  EXPECT_THAT(without, ::testing::HasSubstr("  embedding\n"));
}

TEST(ReportTest, WithoutAPipelineNothingIsSaidOfOne) {
  EXPECT_EQ(PipelineReport(CreateJob(kFp16, 2), Summaries()), "");
}

TEST(ReportTest, APipelineIsDescribed) {
  EXPECT_THAT(DescribeJob(PipelineJob("zb-v"), "8 threads on cpu"),
              ::testing::HasSubstr("8 threads on cpu as tensor 1 x context 1 x data 2 x pipeline 4 "
                                   "(zb-v, parts by flops), 1 tensor shard, ZeRO stage 0"));
}

// Each rank has another part of the model.
TEST(ReportTest, StagesThatDifferHaveTheirOwnFormulas) {
  std::vector<train::RankSummary> ranks = PipelineSummaries({1, 1, 1, 1}, false);
  EXPECT_THAT(ResourceReport(PipelineJob("1f1b"), ranks), ::testing::HasSubstr("\n   model  "));
  ranks[5].memory_model[0] += 2'000'000;
  ranks[5].padded_bytes = 4'000'000;
  const std::string report = ResourceReport(PipelineJob("1f1b"), ranks);
  EXPECT_THAT(report, ::testing::HasSubstr("\n model 0           1.000"));
  EXPECT_THAT(report, ::testing::HasSubstr("\n model 5           3.000"));
  EXPECT_THAT(report, ::testing::HasSubstr("Y is a rank's part of weights with padding"));
  EXPECT_THAT(report,
              ::testing::HasSubstr("\nformula 5     1.000000     2.000000     0.000032       "
                                   "0.750000"));
  EXPECT_THAT(report,
              ::testing::HasSubstr("\nformula 0     1.000000     2.000000     0.000032       "
                                   "1.500000"));
  EXPECT_THAT(report, ::testing::HasSubstr("\nPipeline, 1f1b: 4 stages"));
}

TEST(ReportTest, ChunksHaveTheMeansOfTheirStages) {
  std::vector<train::PassSeconds> stages(4);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto unit = static_cast<double>(1 << stage);
    stages[stage][train::PassPart::kForward] = 8 * unit;
    stages[stage][train::PassPart::kBackwardInput] = 16 * unit;
    stages[stage][train::PassPart::kBackwardWeight] = 32 * unit;
    stages[stage][train::PassPart::kRecomputeQkv] = 8 * unit;
  }
  stages[0][train::PassPart::kBackward] = 80;
  // The last stage was not marked.
  const auto chunks = train::ChunkSummaries(
      stages, std::vector<parallel::StageRange>{{0, 2}, {3, 5}}, /*micro_batches=*/8);
  EXPECT_EQ(chunks[0].stages.first, 0);
  EXPECT_EQ(chunks[0].stages.end, 2);
  EXPECT_EQ(chunks[0].forward, 3);
  EXPECT_EQ(chunks[0].backward_input, 6 + 3 + 10);
  EXPECT_EQ(chunks[0].backward_weight, 12);
  EXPECT_EQ(chunks[1].stages.end, 5);
  EXPECT_EQ(chunks[1].forward, 8);
  EXPECT_EQ(chunks[1].seconds(), 8 + 24 + 32);
  EXPECT_EQ(chunks[2].stages.end, 0);
  EXPECT_EQ(train::ChunkSummaries(stages, std::vector<parallel::StageRange>{{0, 4}}, 0)[0].forward,
            8 * 15);
}

TEST(ReportTest, ThePapersTermsAreOfAdamIn16Bits) {
  const std::string report = ResourceReport(CreateJob(kFp32, 2), Summaries());
  EXPECT_EQ(report.find("paper"), std::string::npos) << report;
  EXPECT_NE(report.find("\n3 (N-1)/N Y is 1.500000 Y; tied"), std::string::npos) << report;
}

}  // namespace
}  // namespace brigade::gpt
