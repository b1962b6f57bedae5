#ifndef BRIGADE_TESTS_EXAMPLES_GPT_TRAINED_H_
#define BRIGADE_TESTS_EXAMPLES_GPT_TRAINED_H_

// Small trainings on threads, and what they must have in common.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/config.h"
#include "brigade/train/observers/history.h"
#include "gtest/gtest.h"

namespace brigade::gpt {

inline constexpr int64_t kSteps = 30;

inline Job CreateJob(const std::string& config, int ranks) {
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 32, .context = 32};
  job.config = train::ParseConfig(config, ranks).value();
  job.corpus = ReadLicences().value();
  job.corpus.held_out.resize(2000);  // evaluations are not what is tested
  job.steps = kSteps;
  return job;
}

struct Trained {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  double held_out = 0;
  std::vector<int64_t> evaluated;  // after so many steps
  train::Outcome outcome;
};

inline Trained Train(const Job& job, int ranks) {
  train::History history;
  const std::atomic<bool> stop = false;
  Trained run;
  absl::StatusOr<train::Outcome> outcome = TrainOnThreads(job, ranks, {&history, nullptr, &stop});
  EXPECT_OK(outcome);
  if (!outcome.ok()) return run;
  run.outcome = *std::move(outcome);
  for (const train::StepMetrics& step : history.steps()) {
    run.losses.push_back(step.loss);
    run.grad_norms.push_back(step.grad_norm);
  }
  for (const train::Evaluation& evaluation : history.evaluations()) {
    run.held_out = evaluation.held_out_loss;
    run.evaluated.push_back(evaluation.step);
  }
  return run;
}

// What each rank had and sent is what the formulas say.
inline void ExpectModelledMemoryAndTraffic(const Trained& run, int64_t steps = kSteps) {
  for (const train::RankSummary& rank : run.outcome.ranks) {
    for (int p = 0; p < device::kPurposes; ++p) {
      EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
    }
    for (int p = 0; p < device::kPurposes; ++p) {
      EXPECT_EQ(rank.host_memory[p], rank.host_memory_model[p]) << p << " of the host";
    }
    EXPECT_EQ(rank.movement.to_host, steps * rank.movement_of_step.to_host);
    EXPECT_EQ(rank.movement.from_host, steps * rank.movement_of_step.from_host);
    EXPECT_EQ(rank.movement.file_read, steps * rank.movement_of_step.file_read);
    EXPECT_EQ(rank.movement.file_written, steps * rank.movement_of_step.file_written);
    EXPECT_EQ(rank.file_bytes, rank.file_bytes_model);
    EXPECT_EQ(rank.steps, steps);
    EXPECT_EQ(rank.traffic.gradients, steps * rank.traffic_of_step.gradients);
    EXPECT_EQ(rank.traffic.parameters, steps * rank.traffic_of_step.parameters);
    EXPECT_EQ(rank.traffic.scalars, steps * rank.traffic_of_step.scalars);
    EXPECT_EQ(rank.traffic.between, steps * rank.traffic_of_step.between);
    EXPECT_EQ(rank.traffic.near, steps * rank.traffic_of_step.near);
    EXPECT_EQ(rank.traffic.nodes, steps * rank.traffic_of_step.nodes);
    for (size_t group = 0; group < rank.sent.size(); ++group) {
      EXPECT_EQ(rank.sent[group], steps * rank.sent_of_step[group])
          << parallel::Name(parallel::kGridGroups[group]);
    }
    EXPECT_EQ(rank.stashed.to_host, steps * rank.stashed_of_step.to_host);
    EXPECT_EQ(rank.stashed.from_host, steps * rank.stashed_of_step.from_host);
    EXPECT_EQ(rank.stashed.file_read, steps * rank.stashed_of_step.file_read);
    EXPECT_EQ(rank.stashed.file_written, steps * rank.stashed_of_step.file_written);
  }
}

inline constexpr const char* kAdamW = R"("optimizer": {"type": "AdamW", "params": {"lr": 0.002}},
       "scheduler": {"type": "WarmupLR",
                     "params": {"warmup_num_steps": 10, "warmup_type": "linear"}})";

inline std::string Config(int64_t batch, int stage, const std::string& precision,
                          const std::string& optimizer = kAdamW, double clipping = 1.0) {
  // A scale that does not overflow at first, so that no step is skipped that fp32 does.
  const std::string section = precision == "fp16"
                                  ? R"("fp16": {"enabled": true, "initial_scale_power": 12}, )"
                              : precision == "bf16" ? R"("bf16": {"enabled": true}, )"
                                                    : "";
  return absl::StrCat("{\"train_batch_size\": ", batch, ", \"gradient_clipping\": ", clipping, ", ",
                      section, optimizer, ", \"zero_optimization\": {\"stage\": ", stage, "}}");
}

}  // namespace brigade::gpt

#endif  // BRIGADE_TESTS_EXAMPLES_GPT_TRAINED_H_
