#ifndef BRIGADE_TRAIN_CONFIG_CONFIG_SECTIONS_H_
#define BRIGADE_TRAIN_CONFIG_CONFIG_SECTIONS_H_

// The parts of the table of keys (config_keys.h), with pointers into the settings, like it.

#include "brigade/optim/schedule.h"
#include "brigade/train/config/config_keys.h"
#include "brigade/train/config/json_reader.h"
#include "brigade/train/config/json_values.h"

namespace brigade::train {

// Whole numbers beyond are not exact in JSON.
inline constexpr double kLargest = int64_t{1} << 53;
inline constexpr double kLargestFloat = 3.0e38;
inline constexpr double kMaxSteps = optim::kMaxLearningRates / 4;

inline constexpr NumberRange kPositive = {0x1p-149, kLargestFloat, "more than 0, as a float too"};
inline constexpr NumberRange kNotNegative = {0.0, kLargestFloat,
                                             "0 or more, and finite as a float"};
inline constexpr NumberRange kBelowOne = {0.0, 1.0 - 0x1p-24, "0 or more, and less than 1"};
inline constexpr NumberRange kUnit = {0.0, 1.0, "0 to 1"};
inline constexpr NumberRange kSteps = {1.0, kMaxSteps, "1 to 2^24"};
inline constexpr NumberRange kStepsOrNone = {0.0, kMaxSteps, "0 to 2^24"};
inline constexpr NumberRange kRanks = {1.0, 1 << 15, "1 to 2^15"};
inline constexpr NumberRange kCount = {1.0, kLargest, "1 or more"};
inline constexpr NumberRange kCountOrNone = {0.0, kLargest, "0 or more"};

// The rate of --lr.
inline Auto ByRate(const Settings& settings) {
  return FromFlag("--lr", settings.flags.lr.has_value(), settings.flags.lr.value_or(0));
}

// The same, with types of elements by all names that precision::ParseTrainingFormat knows.
Value TypeNames(Value value);

// "optimizer", "scheduler".
Key OptimizerKey(Settings& settings);
Key SchedulerKey(Settings& settings);

// "zero_optimization", "aio".
Keys ZeroKeys(Settings& settings);
Keys AioKeys(Settings& settings);

// "tensor_parallel", "pipeline".
Keys TensorKeys(Settings& settings);
Keys PipelineKeys(Settings& settings);

// "autotuning".
Keys AutotuningKeys(Settings& settings);
// "flops_profiler".
Key ProfilerKey(Settings& settings);

// "brigade".
Keys OwnKeys(Settings& settings);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_CONFIG_SECTIONS_H_
