// Whole trainings on a GPU that all ranks share: every stage gives the same bits, near those of the CPU.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/config.h"
#include "brigade/examples/gpt/history.h"
#include "brigade/examples/gpt/random.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kSteps = 30;

// A host with a GPU need not have Debian's licences.
std::string RandomWords(int64_t bytes, uint64_t seed) {
  constexpr const char* kWords[] = {"bucket ",  "brigade ", "gradient ", "rank ",
                                    "stream\n", "shard ",   "gather ",   "scale "};
  Random random(seed, 0);
  std::string text;
  while (static_cast<int64_t>(text.size()) < bytes) text += kWords[random.Next() % 8];
  return text;
}

struct Losses {
  std::vector<double> training;
  double held_out = 0;
};

Losses Train(device::Device device, int stage, const std::string& precision) {
  // A scale of fp16 that does not overflow at first, so that every step counts.
  const std::string section = precision == "fp16"
                                  ? R"("fp16": {"enabled": true, "initial_scale_power": 12},)"
                              : precision == "bf16" ? R"("bf16": {"enabled": true},)"
                                                    : "";
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 32, .context = 32};
  job.config =
      ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "gradient_clipping": 1.0,)", section,
                               R"("optimizer": {"type": "AdamW", "params": {"lr": 0.002}},
                          "zero_optimization": {"stage": )",
                               stage, "}}"),
                  kRanks)
          .value();
  job.corpus = {RandomWords(20000, 1), RandomWords(2000, 2), "random words"};
  job.steps = kSteps;
  job.device = device;
  History history;
  Recorder recorder(nullptr);
  const std::atomic<bool> stop = false;
  Losses losses;
  EXPECT_OK(TrainOnThreads(job, kRanks, {&history, recorder, stop}));
  for (const StepMetrics& step : history.steps()) losses.training.push_back(step.loss);
  if (!history.evaluations().empty()) {
    losses.held_out = history.evaluations().back().held_out_loss;
  }
  return losses;
}

class TrainingGpuTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, TrainingGpuTest, ::testing::Values("fp32", "fp16", "bf16"),
                         [](const auto& info) { return info.param; });

TEST_P(TrainingGpuTest, EveryStageTrainsAlikeAndWithinTwoPercentOfTheCpu) {
  const Losses cpu = Train(device::Cpu(), 0, GetParam());
  ASSERT_EQ(cpu.training.size(), size_t{kSteps});
  ASSERT_LT(cpu.held_out, cpu.training.front() - 1.0);
  Losses first;
  for (int stage = 0; stage < zero::kStages; ++stage) {
    SCOPED_TRACE(stage);
    const Losses gpu = Train(device::Cuda(), stage, GetParam());
    ASSERT_EQ(gpu.training.size(), size_t{kSteps});
    if (stage == 0) first = gpu;
    EXPECT_EQ(gpu.training, first.training);
    EXPECT_EQ(gpu.held_out, first.held_out);
    for (size_t step = 0; step < size_t{kSteps}; ++step) {
      EXPECT_NEAR(gpu.training[step], cpu.training[step], 0.02 * cpu.training[step]) << step;
    }
    EXPECT_NEAR(gpu.held_out, cpu.held_out, 0.02 * cpu.held_out);
  }
}

}  // namespace
}  // namespace brigade::gpt
