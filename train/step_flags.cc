#include "brigade/train/step_flags.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(std::optional<int64_t>, batch, std::nullopt,
          "samples of a step, of all ranks: train_batch_size. Before the config's, whose "
          "micro-batch and accumulation stay and must divide it");
ABSL_FLAG(std::optional<double>, lr, std::nullopt,
          "the learning rate, to which schedules rise: optimizer.params.lr. Before the config's, "
          "and of AdamW where it has no optimizer");
ABSL_FLAG(std::string, precision, "",
          "fp32, fp16 or bf16: with it for \"auto\" in fp16.enabled and bf16.enabled, and else as "
          "these have it");

namespace brigade::train {

StepFlags StepOfFlags(Refusals& refusals) {
  StepFlags step = {.batch = absl::GetFlag(FLAGS_batch).value_or(0), .lr = absl::GetFlag(FLAGS_lr)};
  constexpr int64_t kMostSamples = int64_t{1} << 53;
  if (absl::GetFlag(FLAGS_batch).has_value() && (step.batch < 1 || step.batch > kMostSamples)) {
    refusals.Add("batch", " is ", step.batch, "; it must be 1 to 2^53");
    step.batch = 1;
  }
  constexpr double kLargestRate = 3.0e38;
  if (step.lr.has_value() && !(*step.lr >= 0 && *step.lr <= kLargestRate)) {
    refusals.Add("lr", " is ", *step.lr, "; it must be a number, 0 or more, and finite as a float");
    step.lr = 0.001;
  }
  if (const std::string precision = absl::GetFlag(FLAGS_precision); !precision.empty()) {
    step.dtype = precision::ParseTrainingFormat(precision);
    if (!step.dtype.has_value()) {
      refusals.Add("precision", " is \"", precision, "\"; it must be fp32, fp16 or bf16");
      step.dtype = precision::DType::kFloat32;
    }
  }
  return step;
}

}  // namespace brigade::train
