// Trainings that go on in another stage, for everything that a config can ask for: the losses are
// those of a training that nobody has interrupted.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/tests/testing/sanitizer.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/config.h"
#include "brigade/train/observers/history.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kSteps = 8, kSavedStep = 4;

constexpr char kAdamW[] = R"({"type": "AdamW", "params": {"lr": 0.002}})";

struct Setting {
  const char* name;
  // Keys of the config, with a comma behind them.
  const char* keys;
  const char* optimizer = kAdamW;
  int64_t persistence_threshold = 0;
};

// Adam in every precision, with the scale of fp16 overflowing before and after the save; dropout,
// whose masks are numbered by the steps, those that overflow too; then what adds up and sends
// gradients otherwise, and other optimizers and schedules.
constexpr Setting kSettings[] = {
    {"fp32", ""},
    {"bf16", R"("bf16": {"enabled": true},)"},
    {"fp16", R"("fp16": {"enabled": true, "initial_scale_power": 26},)"},
    {"static_scale", R"("fp16": {"enabled": true, "loss_scale": 128},)"},
    {"micro_batches", R"("bf16": {"enabled": true}, "gradient_accumulation_steps": 2,)"},
    {"dropout",
     R"("fp16": {"enabled": true, "initial_scale_power": 26}, "brigade": {"dropout": 0.2},)"},
    {"dropout_micro_batches", R"("gradient_accumulation_steps": 2, "brigade": {"dropout": 0.2},)",
     kAdamW, 1 << 20},
    {"wire", R"("communication_data_type": "fp16", "gradient_clipping": 0.5,)"},
    {"partials", R"("bf16": {"enabled": true}, "brigade": {"reduction": "fp32_partials"},)"},
    {"persistent", R"("bf16": {"enabled": true},)", kAdamW, 100},
    {"momentum", "", R"({"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}})"},
    {"lion", R"("bf16": {"enabled": true},)",
     R"({"type": "Lion", "params": {"lr": 0.001, "weight_decay": 0.1}})"},
    {"moments_of_8_bits", R"("bf16": {"enabled": true},)",
     R"({"type": "AdamW8bit", "params": {"lr": 0.002, "min_8bit_size": 500}})"},
    {"plain_sgd", R"("bf16": {"enabled": true},)", R"({"type": "SGD", "params": {"lr": 0.01}})"},
    {"schedule_of_transformers",
     R"("scheduler": {"type": "warmup_stable_decay",
                      "params": {"num_training_steps": 8, "num_warmup_steps": 2,
                                 "num_decay_steps": 4}},)"},
    {"schedule",
     R"("scheduler": {"type": "WarmupCosineLR",
                      "params": {"total_num_steps": 8, "warmup_num_steps": 3}},)",
     R"({"type": "Adam", "params": {"lr": 0.002, "weight_decay": 0.1, "adam_w_mode": false}})"},
};

Job CreateJob(const Setting& setting, int stage) {
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 16, .context = 16};
  job.config =
      train::ParseConfig(absl::StrCat("{\"train_batch_size\": 8, ", setting.keys,
                                      "\"optimizer\": ", setting.optimizer,
                                      ", \"zero_optimization\": {\"stage\": ", stage, "}}"),
                         kRanks)
          .value();
  // The last unit then stays in memory in stage 3: its weights are not gathered in each pass.
  if (stage == 3) job.config.zero.persistence_threshold = setting.persistence_threshold;
  job.corpus = ReadLicences().value();
  job.corpus.held_out.resize(500);
  job.steps = kSteps;
  return job;
}

struct Trained {
  std::vector<double> losses, grad_norms, loss_scales;
  double held_out = 0;
  std::vector<train::RankSummary> ranks;
};

Trained Train(const Job& job) {
  train::History history;
  const std::atomic<bool> stop = false;
  Trained run;
  const auto outcome = TrainOnThreads(job, kRanks, {&history, nullptr, &stop});
  EXPECT_OK(outcome);
  if (!outcome.ok()) return run;
  run.ranks = outcome->ranks;
  for (const train::StepMetrics& step : history.steps()) {
    run.losses.push_back(step.loss);
    run.grad_norms.push_back(step.grad_norm);
    run.loss_scales.push_back(step.loss_scale);
  }
  run.held_out = history.evaluations().back().held_out_loss;
  return run;
}

template <typename T>
std::vector<T> From(const std::vector<T>& all, int64_t step) {
  return {all.begin() + step, all.end()};
}

class ResumedTrainingTest : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(All, ResumedTrainingTest, ::testing::ValuesIn(kSettings),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ResumedTrainingTest, GoesOnWithTheSameLossesFromAnyStageInAnyStage) {
  const std::filesystem::path folder =
      std::filesystem::path(std::getenv("TEST_TMPDIR")) / GetParam().name;
  const Trained whole = Train(CreateJob(GetParam(), 0));
  ASSERT_EQ(whole.losses.size(), static_cast<size_t>(kSteps));
  for (int from = 0; from < zero::kStages; ++from) {
    const std::filesystem::path root = folder / absl::StrCat(from);
    std::filesystem::create_directories(root.parent_path());
    Job saved = CreateJob(GetParam(), from);
    saved.checkpoints = {.save = root.string(), .save_every = kSavedStep};
    const Trained first = Train(saved);
    // Saving changes nothing.
    EXPECT_EQ(first.losses, whole.losses);
    EXPECT_EQ(first.held_out, whole.held_out);
    for (const train::RankSummary& rank : first.ranks) {
      EXPECT_EQ(rank.saves, 2);
      EXPECT_EQ(rank.failed_saves, 0);
      for (int p = 0; p < device::kPurposes; ++p) EXPECT_EQ(rank.memory[p], rank.memory_model[p]);
    }
    for (int to = 0; to < zero::kStages; ++to) {
      // Under a sanitizer each stage is resumed once.
      if (testing::kSanitizer && to != (from + 1) % zero::kStages) continue;
      SCOPED_TRACE(absl::StrCat("stage ", from, " to ", to));
      Job resumed = CreateJob(GetParam(), to);
      resumed.checkpoints.resume = (root / "step-00000004").string();
      const Trained second = Train(resumed);
      EXPECT_EQ(second.losses, From(whole.losses, kSavedStep));
      EXPECT_EQ(second.grad_norms, From(whole.grad_norms, kSavedStep));
      EXPECT_EQ(second.loss_scales, From(whole.loss_scales, kSavedStep));
      EXPECT_EQ(second.held_out, whole.held_out);
    }
  }
}

}  // namespace
}  // namespace brigade::gpt
