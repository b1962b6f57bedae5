#ifndef BRIGADE_OPTIM_SCHEDULE_H_
#define BRIGADE_OPTIM_SCHEDULE_H_

// Learning rates over a training run, with the names, defaults and formulas of DeepSpeed 0.19 and
// of Hugging Face's transformers. A schedule is a table: entry k is the rate of update k + 1, and
// the last entry stays. Steps that are skipped are no updates.
//
// DeepSpeed moves its schedule after each update, from "iteration -1" on: the first update has the
// schedule's lowest rate, and update k has what the formula gives for iteration k - 2. Hugging
// Face's update k has what the formula gives for step k - 1.
//
// Precision    Double, rounded to float once.
// Determinism  Same bits wherever the C library has the same log, cos and pow.
// Source       deepspeed/runtime/lr_schedules.py of release 0.19.0; Smith 2018 for OneCycle and
//              LRRangeTest; src/transformers/optimization.py of release 4.57; Loshchilov and Hutter
//              2017 for restarts; Hu et al. 2024 (arXiv 2404.06395) for WarmupStableDecay.

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace brigade::optim {

// How a warm-up of n steps grows from 0 to 1: log(step + 1) / log(n), or step / n. n is at least 2.
enum class WarmupType : uint8_t { kLog, kLinear };

// The group's rate.
struct ConstantLR {};

// From warmup_min_lr to warmup_max_lr, where it stays.
struct WarmupLR {
  double warmup_min_lr = 0.0;
  // None: the group's rate.
  std::optional<double> warmup_max_lr = {};
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
};

// The same, then straight down to 0 at total_num_steps.
struct WarmupDecayLR {
  // Must be given.
  int64_t total_num_steps = 0;
  double warmup_min_lr = 0.0;
  double warmup_max_lr = 0.001;
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
};

// Factors on the group's rate: from warmup_min_ratio to 1, then along half a cosine to
// cos_min_ratio, where it stays (DeepSpeed 0.19.0 itself goes up again past total_num_steps). The
// very first update has the rate 0.
struct WarmupCosineLR {
  // Must be given.
  int64_t total_num_steps = 0;
  double warmup_min_ratio = 0.0;
  int64_t warmup_num_steps = 1000;
  double cos_min_ratio = 0.0001;
  WarmupType warmup_type = WarmupType::kLog;
};

// Up from cycle_min_lr to cycle_max_lr and down again, then
// cycle_min_lr / (1 + decay_lr_rate * steps since / decay_step_size).
struct OneCycle {
  // Must be given, as must cycle_max_lr.
  double cycle_min_lr = 0.0;
  double cycle_max_lr = 0.0;
  double decay_lr_rate = 0.0;
  int64_t cycle_first_step_size = 2000;
  // None: as the first.
  std::optional<int64_t> cycle_second_step_size = {};
  // 0: no decay.
  int64_t decay_step_size = 0;
  // The decay never ends: where its table does. Must be given with decay.
  int64_t total_num_steps = 0;
  // True, DeepSpeed's default, is refused: a group's betas are constants here, and the bias
  // corrections are made of their powers, so momentum cannot follow the rate.
  bool cycle_momentum = false;
};

// Up from lr_range_test_min_lr for as long as one likes, to find the rate at which a training
// diverges: min_lr * (1 + step_rate * steps / step_size), with a staircase in whole intervals.
struct LRRangeTest {
  double lr_range_test_min_lr = 0.001;
  int64_t lr_range_test_step_size = 2000;
  double lr_range_test_step_rate = 1.0;
  bool lr_range_test_staircase = false;
  // The rise never ends: where its table does. Must be given.
  int64_t total_num_steps = 0;
};

// Of transformers: factors on the group's rate, which rise from 0 to 1 in num_warmup_steps updates,
// of which there may be none. The first update of a warm-up has the rate 0. What falls has fallen
// at num_training_steps, which must be given; one later where the warm-up has no end before.

// "constant_with_warmup".
struct ConstantWithWarmup {
  int64_t num_warmup_steps = 0;
};

// "linear": down to 0 in a line.
struct LinearWithWarmup {
  int64_t num_warmup_steps = 0;
  int64_t num_training_steps = 0;
};

// "cosine": along num_cycles waves, half of one by default, down to min_lr_rate, where it stays
// (transformers itself goes up again past num_training_steps). With min_lr_rate its name is
// "cosine_with_min_lr".
struct CosineWithWarmup {
  int64_t num_warmup_steps = 0;
  int64_t num_training_steps = 0;
  double num_cycles = 0.5;
  double min_lr_rate = 0.0;
};

// "cosine_with_restarts": num_cycles times along half a cosine, down to 0.
struct CosineWithRestarts {
  int64_t num_warmup_steps = 0;
  int64_t num_training_steps = 0;
  int64_t num_cycles = 1;
};

// "polynomial": down to lr_end, a rate of its own, which is at most the group's.
struct PolynomialDecay {
  int64_t num_warmup_steps = 0;
  int64_t num_training_steps = 0;
  double lr_end = 1e-7;
  double power = 1.0;
};

// "inverse_sqrt": with the root of the steps, 1 / sqrt((step - num_warmup_steps) / timescale + 1).
struct InverseSqrt {
  int64_t num_warmup_steps = 0;
  // It never ends: where its table does.
  int64_t num_training_steps = 0;
  // None: num_warmup_steps, and 10,000 without.
  std::optional<int64_t> timescale = {};
};

// How WarmupStableDecay rises and falls: x, (1 - cos(pi x)) / 2 or 1 - sqrt(1 - x) of its way up,
// and 1 - x, (1 + cos(2 pi num_cycles x)) / 2 or 1 - sqrt(x) of its way down.
enum class RampType : uint8_t { kLinear, kCosine, kOneMinusSqrt };

// "warmup_stable_decay", WSD: from min_lr_ratio to 1, where it stays for the steps between, and
// down to min_lr_ratio in the last num_decay_steps.
struct WarmupStableDecay {
  int64_t num_warmup_steps = 0;
  // Must be given: all of the three phases' steps, num_stable_steps of transformers among them.
  int64_t num_training_steps = 0;
  // Must be given.
  int64_t num_decay_steps = 0;
  RampType warmup_type = RampType::kLinear;
  RampType decay_type = RampType::kCosine;
  double min_lr_ratio = 0.0;
  double num_cycles = 0.5;
};

using Schedule = std::variant<ConstantLR, WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle,
                              LRRangeTest, ConstantWithWarmup, LinearWithWarmup, CosineWithWarmup,
                              CosineWithRestarts, PolynomialDecay, InverseSqrt, WarmupStableDecay>;

// The longest table that a schedule may have.
inline constexpr int64_t kMaxLearningRates = int64_t{1} << 26;

// InvalidArgument naming schedule, field and value.
absl::Status Validate(const Schedule& schedule);
// The same of the schedule beside the group's rate.
absl::Status Validate(const Schedule& schedule, double lr);

// Whether the group's rate has a part in the schedule's.
bool UsesGroupRate(const Schedule& schedule);

// How many updates it takes to the entry that stays, itself included. What follows takes valid
// schedules.
int64_t LearningRateCount(const Schedule& schedule);

// The rate of each update from the first on; `lr` is the group's rate.
std::vector<float> LearningRates(const Schedule& schedule, double lr);

// The same into a table of any length, the last entries repeating the one that stays.
void FillLearningRates(const Schedule& schedule, double lr, absl::Span<float> table);

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_SCHEDULE_H_
