// Two linear layers with a ReLU between them, mean squared error, ten epochs: a training of one's
// own model with all that a configuration says, here ZeRO and AdamW. Alone, or as one of the
// processes that a launcher starts.

#include <cmath>
#include <cstdio>
#include <memory>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/data/samples.h"
#include "brigade/device/command_line.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/mlp.h"
#include "brigade/nn/random.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/trainer.h"

ABSL_FLAG(int, stage, 2, "of ZeRO, 0 to 3");

namespace {

namespace collectives = brigade::collectives;
namespace data = brigade::data;
namespace examples = brigade::examples;
namespace train = brigade::train;

constexpr char kConfig[] = R"({
  "train_batch_size": 64,
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 1e-4}},
  "zero_optimization": {"stage": %d}
})";

// Points of [-1, 1]^4 and a function of them: any sample can be made at any time.
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

absl::Status Run() {
  BRIGADE_ASSIGN_OR_RETURN(const auto launch_info, collectives::LaunchInfoFromEnvironment());
  train::Job job;
  BRIGADE_ASSIGN_OR_RETURN(
      job.config,
      train::ParseConfig(absl::StrFormat(kConfig, absl::GetFlag(FLAGS_stage)), launch_info.size));
  const auto model = [](const train::ModelPlace& place) {
    return examples::Mlp::Create(place, {4, 64, 1}, examples::Loss::kSquaredError);
  };
  const train::TrainingData points = {.training = std::make_shared<Points>(1, 1000),
                                      .held_out = std::make_shared<Points>(2, 200),
                                      .epochs = 10};
  train::History history;
  BRIGADE_ASSIGN_OR_RETURN(
      const auto trainer,
      train::Trainer::Create(job, model, points, launch_info, {.observer = &history}));
  BRIGADE_RETURN_IF_ERROR(trainer->Fit().status());
  if (launch_info.rank != 0) return absl::OkStatus();
  std::printf("%d steps; held-out error %.4f before, %.4f after ten epochs\n",
              static_cast<int>(history.steps().size()), history.evaluations().front().held_out_loss,
              history.evaluations().back().held_out_loss);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return brigade::device::RunProgram(argc, argv, "Trains two linear layers, in any ZeRO stage.",
                                     Run);
}
