#ifndef BRIGADE_TESTS_TRAIN_TRAININGS_H_
#define BRIGADE_TESTS_TRAIN_TRAININGS_H_

// Small trainings of models::Models on threads, by what the grid, the stage and the type are, and
// what of them has to be the same.

#include <algorithm>
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
#include "brigade/device/memory_stats.h"
#include "brigade/models/config.h"
#include "brigade/models/lora.h"
#include "brigade/parallel/grid.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/tokens.h"
#include "brigade/train/config/config.h"
#include "brigade/train/decoder_model.h"
#include "brigade/train/model_task.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/observers/observer.h"
#include "brigade/train/summary.h"
#include "brigade/train/training.h"
#include "gtest/gtest.h"

namespace brigade::train {

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

// A batch of 8 samples, of ranks that share the model, samples and the batch.
struct Case {
  int tensor = 1;
  // Of the model; 0: as many as there are tensor ranks.
  int shards = 0;
  int context = 1;
  std::string exchange = "ulysses";
  int data = 1;
  int pipeline = 1;
  std::string schedule = {};
  int stage = 0;
  std::string type = "fp32";
  // Of fp16: begins with a scale at which some steps are skipped.
  bool overflows = true;
  bool recompute = false;
  std::string partition = {};
  int pieces = 1;
  bool overlap = false;
  std::string sums = {};
  std::string more = {};
  // Samples; 0: as the test says, else 1.
  int micro_batch = 0;

  int ranks() const { return tensor * context * data * pipeline; }
};

inline std::string Config(const Case& of) {
  std::vector<std::string> brigade;
  const auto add = [&](bool is_given, const char* key, const auto& value) {
    if (is_given) brigade.push_back(absl::StrCat("\"", key, "\": ", value));
  };
  const auto quoted = [](const std::string& text) { return absl::StrCat("\"", text, "\""); };
  add(of.shards > 0, "tensor_shards", of.shards);
  add(of.context > 1, "context_exchange", quoted(of.exchange));
  add(!of.schedule.empty(), "schedule", quoted(of.schedule));
  add(of.recompute, "recompute", quoted("block"));
  add(!of.partition.empty(), "partition", quoted(of.partition));
  add(of.pieces > 1, "tensor_pieces", of.pieces);
  add(!of.sums.empty(), "tensor_sums", quoted(of.sums));
  std::string more = of.more;
  if (of.type != "fp32") {
    const char* const scale =
        of.overflows ? R"(, "initial_scale_power": 18, "loss_scale_window": 4, "hysteresis": 1)"
                     : R"(, "initial_scale_power": 10)";
    absl::StrAppend(&more, ", \"", of.type, "\": {\"enabled\": true",
                    of.type == "fp16" ? scale : "", "}");
  }
  if (of.tensor > 1) {
    absl::StrAppend(&more, ", \"tensor_parallel\": {\"autotp_size\": ", of.tensor,
                    of.overlap ? ", \"tp_overlap_comm\": true" : "", "}");
  }
  if (of.context > 1) absl::StrAppend(&more, ", \"sequence_parallel_size\": ", of.context);
  if (of.pipeline > 1) absl::StrAppend(&more, ", \"pipeline\": {\"stages\": ", of.pipeline, "}");
  if (!brigade.empty()) {
    absl::StrAppend(&more, ", \"brigade\": {", absl::StrJoin(brigade, ", "), "}");
  }
  return absl::StrFormat(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": %d,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
      "zero_optimization": {"stage": %d}%s})",
                         std::max(of.micro_batch, 1), of.stage, more);
}

struct Ran {
  absl::Status status;
  std::vector<double> losses, norms, held_out;
  Outcome outcome;
};

inline TrainingData DataOf(bool apart = false, int64_t size = 19) {
  // Of 19 samples each epoch ends with a step of 3, in which some micro-batches have none.
  return {.training = std::make_shared<Tokens>(size, apart),
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

// Bits of losses; norms are summed in another order, in double.
inline void ExpectSameResults(const Ran& ran, const Ran& other) {
  ASSERT_OK(ran.status);
  ASSERT_OK(other.status);
  ASSERT_FALSE(ran.losses.empty());
  EXPECT_EQ(ran.losses, other.losses);
  EXPECT_EQ(ran.held_out, other.held_out);
  ASSERT_EQ(ran.norms.size(), other.norms.size());
  for (size_t step = 0; step < ran.norms.size(); ++step) {
    // Both infinite where a step is skipped.
    if (ran.norms[step] == other.norms[step]) continue;
    EXPECT_NEAR(ran.norms[step], other.norms[step], 1e-12 * other.norms[step]);
  }
}

// Memory is what the formulas say, to the byte.
inline void ExpectModelledMemory(const Ran& ran) {
  ASSERT_OK(ran.status);
  for (const RankSummary& rank : ran.outcome.ranks) {
    for (int p = 0; p < device::kPurposes; ++p) {
      EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
      EXPECT_EQ(rank.host_memory[p], rank.host_memory_model[p]) << p << " of the host";
    }
  }
}

// So is what is sent; of short steps tensor and context ranks send at most that.
inline void ExpectModelledTraffic(const Ran& ran, bool are_whole) {
  ASSERT_OK(ran.status);
  constexpr auto kTensor = static_cast<size_t>(parallel::GridGroup::kTensor);
  constexpr auto kContext = static_cast<size_t>(parallel::GridGroup::kContext);
  ASSERT_FALSE(ran.outcome.ranks.empty());
  for (const RankSummary& rank : ran.outcome.ranks) {
    for (size_t g = 0; g < rank.sent.size(); ++g) {
      const int64_t modelled = rank.steps * rank.sent_of_step[g];
      if (are_whole || (g != kTensor && g != kContext)) {
        EXPECT_EQ(rank.sent[g], modelled) << g;
      } else {
        EXPECT_LE(rank.sent[g], modelled) << g;
      }
    }
  }
}

inline void ExpectSame(const Ran& ran, const Ran& whole) {
  ExpectSameResults(ran, whole);
  ExpectModelledMemory(ran);
  ExpectModelledTraffic(ran, /*are_whole=*/false);
}

// Keeps the profiles of a training.
class Profiles final : public Observer {
 public:
  absl::Status OnStep(const StepMetrics& /*step*/) override { return absl::OkStatus(); }
  absl::Status OnEvaluation(const Evaluation& /*evaluation*/) override { return absl::OkStatus(); }
  absl::Status OnProfile(const ProfileEvent& event) override {
    events.push_back(event);
    return absl::OkStatus();
  }
  std::vector<ProfileEvent> events;
};

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
