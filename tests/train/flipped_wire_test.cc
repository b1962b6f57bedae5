// One bit flips on a wire of a Trainer's training of a model of models/.

#include "brigade/tests/train/flipped_wire.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "brigade/data/samples.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/random.h"
#include "brigade/train/config/config.h"
#include "brigade/train/model_task.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

constexpr int64_t kPositions = 8, kVocabulary = 64;

// Texts of random tokens.
class Tokens final : public data::Samples {
 public:
  int64_t size() const override { return 60; }
  int64_t input_bytes() const override { return kPositions * sizeof(int32_t); }
  int64_t target_bytes() const override { return input_bytes(); }
  int64_t positions() const override { return kPositions; }
  int64_t CountedLosses(int64_t) const override { return kPositions; }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    int32_t ids[kPositions + 1];
    nn::Random random(3, static_cast<uint64_t>(sample));
    for (int32_t& id : ids) id = static_cast<int32_t>(random.Next() % kVocabulary);
    std::memcpy(input, ids, kPositions * sizeof(int32_t));
    std::memcpy(target, ids + 1, kPositions * sizeof(int32_t));
    return absl::OkStatus();
  }
};

std::unique_ptr<ModelTask> TaskOf() {
  const auto model = [](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
    const models::DecoderConfig config = {.vocabulary = kVocabulary,
                                          .layers = 2,
                                          .width = 32,
                                          .heads = 4,
                                          .key_value_heads = 2,
                                          .head_width = 8,
                                          .inner = 48,
                                          .positions = kPositions};
    return models::Decoder::Create(
        config,
        {.dtype = place.config.zero.dtype, .samples = place.samples, .positions = place.positions},
        place.context);
  };
  const auto tokens = std::make_shared<Tokens>();
  return ModelTask::Create(model, {.training = tokens, .held_out = tokens}).value();
}

Job JobOf(int stage) {
  Job job;
  job.config = ParseConfig(absl::StrCat(R"({"train_batch_size": 3, "bf16": {"enabled": true},
          "communication_data_type": "fp32",
          "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
          "zero_optimization": {"stage": )",
                                        stage, "}}"),
                           kWireRanks)
                   .value();
  return job;
}

TEST(FlippedWireTest, OfATrainersModelIsNamedOnThreadsAndInMessages) {
  ExpectWireFlipsAreNamed(JobOf, *TaskOf(), {WireEngine::kThreads, WireEngine::kMessages});
}

TEST(FlippedWireTest, OfATrainersModelIsNamedOverGloo) {
  ExpectWireFlipsAreNamed(JobOf, *TaskOf(), {WireEngine::kGloo});
}

}  // namespace
}  // namespace brigade::train
