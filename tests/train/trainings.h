#ifndef BRIGADE_TESTS_TRAIN_TRAININGS_H_
#define BRIGADE_TESTS_TRAIN_TRAININGS_H_

// Small trainings of models::Models on threads, by what the grid, the stage and the type are, and
// what of them has to be the same.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "brigade/data/dataset.h"
#include "brigade/data/samples.h"
#include "brigade/device/memory_stats.h"
#include "brigade/models/config.h"
#include "brigade/models/lora.h"
#include "brigade/nn/random.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/config.h"
#include "brigade/train/decoder_model.h"
#include "brigade/train/model_task.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/summary.h"
#include "brigade/train/training.h"
#include "gtest/gtest.h"

namespace brigade::train {

// Texts of 8 tokens of 16, of which the last sample % 7 + 1 count; apart they are two documents
// each.
class Tokens final : public data::Samples {
 public:
  explicit Tokens(int64_t size, bool apart = false) : size_(size), apart_(apart) {}

  int64_t size() const override { return size_; }
  int64_t input_bytes() const override { return (apart_ ? 3 : 1) * target_bytes(); }
  int64_t target_bytes() const override { return 8 * sizeof(int32_t); }
  int64_t positions() const override { return 8; }
  int64_t CountedLosses(int64_t sample) const override { return sample % 7 + 1; }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    int32_t ids[9], labels[8];
    nn::Random random(3, static_cast<uint64_t>(sample));
    ids[0] = static_cast<int32_t>(random.Next() % 16);
    for (int i = 1; i < 9; ++i) ids[i] = (5 * ids[i - 1] + 3) % 16;
    for (int i = 0; i < 8; ++i) labels[i] = 8 - i <= sample % 7 + 1 ? ids[i + 1] : data::kIgnored;
    std::memcpy(input, ids, sizeof(labels));
    std::memcpy(target, labels, sizeof(labels));
    if (!apart_) return absl::OkStatus();
    // Positions and ends of documents of 3 and 5 tokens.
    const int32_t documents[] = {0, 1, 2, 0, 1, 2, 3, 4, 3, 3, 3, 8, 8, 8, 8, 8};
    std::memcpy(static_cast<char*>(input) + sizeof(labels), documents, sizeof(documents));
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const bool apart_;
};

inline models::DecoderConfig TinyLlama(bool tied = false) {
  return {.vocabulary = 16,
          .layers = 6,
          .width = 16,
          .heads = 2,
          .key_value_heads = 1,
          .head_width = 8,
          .inner = 24,
          .positions = 8,
          .tied = tied};
}
inline models::DecoderConfig TinyGpt2() {
  return {.architecture = models::Architecture::kGpt2,
          .vocabulary = 16,
          .layers = 6,
          .width = 16,
          .heads = 2,
          .key_value_heads = 2,
          .head_width = 8,
          .inner = 32,
          // More than a sample has.
          .positions = 12,
          .tied = true};
}
inline DecoderModelOptions Adapters() {
  DecoderModelOptions options;
  options.lora = models::LoraOptions{
      .rank = 2, .alpha = 4, .dropout = 0.1, .pattern = ".*(attn|proj|fc|wte|wpe|embed_tokens).*"};
  return options;
}

// A batch of 8 in micro-batches of `micro_batch`, of ranks that share the model and others.
struct Case {
  int pipeline = 1;
  int data = 1;
  std::string schedule = {};
  int stage = 0;
  std::string type = "fp32";
  bool recompute = false;
  std::string partition = {};
  std::string more = {};
  int micro_batch = 1;

  int ranks() const { return pipeline * data; }
};

inline std::string Config(const Case& of) {
  std::vector<std::string> brigade;
  if (!of.schedule.empty()) brigade.push_back(absl::StrCat("\"schedule\": \"", of.schedule, "\""));
  if (of.recompute) brigade.push_back("\"recompute\": \"block\"");
  if (!of.partition.empty()) {
    brigade.push_back(absl::StrCat("\"partition\": \"", of.partition, "\""));
  }
  std::string more = of.more;
  if (of.type != "fp32") {
    absl::StrAppend(&more, ", \"", of.type, "\": {\"enabled\": true",
                    of.type == "fp16" ? R"(, "initial_scale_power": 18, "loss_scale_window": 4,
                        "hysteresis": 1)"
                                      : "",
                    "}");
  }
  if (of.pipeline > 1) absl::StrAppend(&more, ", \"pipeline\": {\"stages\": ", of.pipeline, "}");
  if (!brigade.empty()) {
    absl::StrAppend(&more, ", \"brigade\": {", absl::StrJoin(brigade, ", "), "}");
  }
  return absl::StrFormat(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": %d,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
      "zero_optimization": {"stage": %d}%s})",
                         of.micro_batch, of.stage, more);
}

struct Ran {
  absl::Status status;
  std::vector<double> losses, norms, held_out;
  Outcome outcome;
};

inline TrainingData DataOf(bool apart = false) {
  // 19 samples: each epoch ends with a step of 3, in which some micro-batches have none.
  return {.training = std::make_shared<Tokens>(19, apart),
          .held_out = std::make_shared<Tokens>(9, apart),
          .epochs = 2};
}

struct Training {
  Job job;
  std::unique_ptr<ModelTask> task;
};

inline Training Make(const Case& of, ModelFactory model, TrainingData data) {
  Training made;
  made.job.config = ParseConfig(Config(of), of.ranks()).value();
  made.job.steps = data.Steps(8).value();
  made.task = ModelTask::Create(std::move(model), std::move(data)).value();
  return made;
}

inline Ran TrainAll(const Training& training, int ranks) {
  History history;
  Ran ran;
  const auto outcome = TrainOnThreads(training.job, *training.task, ranks, {.observer = &history});
  ran.status = outcome.status();
  if (outcome.ok()) ran.outcome = *outcome;
  for (const StepMetrics& step : history.steps()) {
    ran.losses.push_back(step.loss);
    ran.norms.push_back(step.grad_norm);
  }
  for (const Evaluation& evaluation : history.evaluations()) {
    ran.held_out.push_back(evaluation.held_out_loss);
  }
  return ran;
}

inline void ExpectSame(const Ran& ran, const Ran& whole) {
  ASSERT_OK(ran.status);
  ASSERT_OK(whole.status);
  ASSERT_FALSE(ran.losses.empty());
  EXPECT_EQ(ran.losses, whole.losses);
  EXPECT_EQ(ran.held_out, whole.held_out);
  ASSERT_EQ(ran.norms.size(), whole.norms.size());
  for (size_t step = 0; step < ran.norms.size(); ++step) {
    // Summed in another order, in double; both infinite where a step is skipped.
    if (ran.norms[step] == whole.norms[step]) continue;
    EXPECT_NEAR(ran.norms[step], whole.norms[step], 1e-12 * whole.norms[step]);
  }
  for (const RankSummary& rank : ran.outcome.ranks) {
    for (int p = 0; p < device::kPurposes; ++p) {
      EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
      EXPECT_EQ(rank.host_memory[p], rank.host_memory_model[p]) << p << " of the host";
    }
    for (size_t g = 0; g < rank.sent.size(); ++g) {
      EXPECT_EQ(rank.sent[g], rank.steps * rank.sent_of_step[g]) << g;
    }
  }
}
inline std::string Folder(const std::string& name) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::remove_all(folder);
  return folder;
}

inline std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

}  // namespace brigade::train

#endif  // BRIGADE_TESTS_TRAIN_TRAININGS_H_
