#ifndef BRIGADE_TRAIN_CONFIG_AUTOTUNING_H_
#define BRIGADE_TRAIN_CONFIG_AUTOTUNING_H_

#include <cstdint>
#include <optional>

#include "brigade/device/requirements.h"

namespace brigade::train {

// By what configurations are compared. The batch of a step stays as it is, so that all three order
// them alike; it is what is shown.
enum class TuningMetric : uint8_t { kThroughput, kLatency, kFlops };

// Which of the configurations that fit are tried, and in which order.
enum class TunerType : uint8_t {
  // By the predicted time.
  kModelBased,
  // One after another, as they are counted up.
  kGridSearch,
  // In an order that a seed decides.
  kRandom,
};

// What a config's section "autotuning" says; //tune reads it, and a training does not. Names and
// defaults are those of deepspeed/autotuning/, with three exceptions: configurations are ordered by
// a model, of which few have to be tried, all dimensions are tuned, and all micro-batches that fit.
struct AutotuningOptions {
  bool enabled = false;
  // Stage and micro-batch alone.
  bool fast = false;
  TuningMetric metric = TuningMetric::kThroughput;
  // The steps of a trial that count, from the first to the last, counted from 1.
  int64_t start_profile_step = 3;
  int64_t end_profile_step = 5;
  TunerType tuner_type = TunerType::kModelBased;
  // Trials without a better one, one after another, after which no more follow.
  int64_t tuner_early_stopping = 5;
  // None: as many as the tuner has of its own.
  std::optional<int64_t> tuner_num_trials = {};
  // Of the micro-batches that fit in memory so many, the largest ones; none: all.
  std::optional<int64_t> num_tuning_micro_batch_sizes = {};
  int64_t min_micro_batch = 1;
  int64_t max_micro_batch = 1024;
};

// Where the options do not say how many are tried.
inline constexpr int64_t kTrialsOfModel = 5;
inline constexpr int64_t kTrialsOfOthers = 50;

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_AUTOTUNING_H_
