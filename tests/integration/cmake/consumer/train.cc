// A training of a model of one's own: two linear layers (examples/mlp.h, which the test lays beside
// this file), in ZeRO stage 2, ten epochs.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "absl/status/status.h"
#include "brigade/data/samples.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/random.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/trainer.h"
#include "mlp.h"

namespace {

namespace data = brigade::data;
namespace examples = brigade::examples;
namespace train = brigade::train;

constexpr char kConfig[] = R"({
  "train_batch_size": 64,
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 1e-4}},
  "zero_optimization": {"stage": 2}
})";

class Points final : public data::Samples {
 public:
  Points(uint64_t seed, int64_t size) : seed_(seed), size_(size) {}

  int64_t size() const override { return size_; }
  int64_t input_bytes() const override { return 4 * sizeof(float); }
  int64_t target_bytes() const override { return sizeof(float); }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    brigade::nn::Random random(seed_, static_cast<uint64_t>(sample));
    auto* const x = static_cast<float*>(input);
    for (int i = 0; i < 4; ++i) x[i] = static_cast<float>(2 * random.Uniform() - 1);
    *static_cast<float*>(target) = x[0] * x[1] + std::sin(2 * x[2]) - x[3];
    return absl::OkStatus();
  }

 private:
  const uint64_t seed_;
  const int64_t size_;
};

absl::Status Train(train::History& history) {
  train::Job job;
  BRIGADE_ASSIGN_OR_RETURN(job.config, train::ParseConfig(kConfig, /*ranks=*/1));
  const auto model = [](const train::ModelPlace& place) {
    return examples::Mlp::Create(place, {4, 64, 1}, examples::Loss::kSquaredError);
  };
  const train::TrainingData points = {.training = std::make_shared<Points>(1, 1000),
                                      .held_out = std::make_shared<Points>(2, 200),
                                      .epochs = 10};
  BRIGADE_ASSIGN_OR_RETURN(
      const auto trainer,
      train::Trainer::Create(job, model, points, /*launch_info=*/{}, {.observer = &history}));
  return trainer->Fit().status();
}

}  // namespace

int main() {
  train::History history;
  const absl::Status status = Train(history);
  std::printf("%s, %d steps", status.ToString().c_str(), static_cast<int>(history.steps().size()));
  if (!status.ok() || history.evaluations().size() < 2) return 1;
  const double before = history.evaluations().front().held_out_loss;
  const double after = history.evaluations().back().held_out_loss;
  std::printf(", held-out error %.4f before and %.4f after\n", before, after);
  return history.steps().size() == 160 && after < 0.2 * before ? 0 : 1;
}
