#ifndef BRIGADE_OPTIM_SCHEDULE_H_
#define BRIGADE_OPTIM_SCHEDULE_H_

// Learning rates over a training run, with the names, defaults and formulas of DeepSpeed 0.19. A
// schedule is a table: entry k is the rate of update k + 1, and the last entry stays. Steps that
// are skipped are no updates.
//
// DeepSpeed moves its schedule after each update, from "iteration -1" on: the first update has the
// schedule's lowest rate, and update k has what the formula gives for iteration k - 2.
//
// Precision    Double, rounded to float once.
// Determinism  Same bits wherever the C library has the same log and cos.
// Source       deepspeed/runtime/lr_schedules.py of release 0.19.0; Smith 2018 for OneCycle.

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

using Schedule = std::variant<ConstantLR, WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle>;

// The longest table that a schedule may have.
inline constexpr int64_t kMaxLearningRates = int64_t{1} << 26;

// InvalidArgument naming schedule, field and value.
absl::Status Validate(const Schedule& schedule);

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
