#include "brigade/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/value_range.h"

namespace brigade::optim {
namespace {

using kernels::CheckInRange;
using kernels::kNonNegative;

constexpr double kPi = 3.14159265358979323846;
// A warm-up and a cycle have two phases of this length at most, so that their sum is in the limit
// as well.
constexpr kernels::ValueRange kSteps = {1.0, kMaxLearningRates / 4, "in [1, 2^24]"};
constexpr kernels::ValueRange kOptionalSteps = {0.0, kMaxLearningRates / 4, "in [0, 2^24]"};

absl::Status CheckSteps(absl::string_view schedule, absl::string_view field, int64_t steps,
                        kernels::ValueRange range = kSteps) {
  return CheckInRange(schedule, field, -1, static_cast<double>(steps), range);
}

absl::Status CheckRate(absl::string_view schedule, absl::string_view field, double rate) {
  return CheckInRange(schedule, field, -1, rate, kNonNegative);
}

absl::Status CheckType(absl::string_view schedule, WarmupType type) {
  if (type == WarmupType::kLog || type == WarmupType::kLinear) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      schedule, ": warmup_type is ", static_cast<int>(type), ", must be kLog or kLinear"));
}

int64_t WarmupSteps(int64_t warmup_num_steps) { return std::max<int64_t>(2, warmup_num_steps); }

// `iteration` in [0, steps)
double WarmupRatio(WarmupType type, int64_t iteration, int64_t steps) {
  if (type == WarmupType::kLinear) return static_cast<double>(iteration) / steps;
  return std::log(static_cast<double>(iteration + 1)) / std::log(static_cast<double>(steps));
}

// Of each schedule: what it may be, its table's length, and the rate in an entry.

absl::Status Check(const ConstantLR&) { return absl::OkStatus(); }
int64_t Count(const ConstantLR&) { return 1; }
double Rate(const ConstantLR&, double lr, int64_t) { return lr; }

absl::Status Check(const WarmupLR& s) {
  BRIGADE_RETURN_IF_ERROR(CheckRate("WarmupLR", "warmup_min_lr", s.warmup_min_lr));
  BRIGADE_RETURN_IF_ERROR(CheckRate("WarmupLR", "warmup_max_lr", s.warmup_max_lr.value_or(0.0)));
  BRIGADE_RETURN_IF_ERROR(CheckSteps("WarmupLR", "warmup_num_steps", s.warmup_num_steps));
  return CheckType("WarmupLR", s.warmup_type);
}
int64_t Count(const WarmupLR& s) { return WarmupSteps(s.warmup_num_steps) + 2; }
double Rate(const WarmupLR& s, double lr, int64_t entry) {
  const int64_t iteration = std::max<int64_t>(0, entry - 1);
  const int64_t steps = WarmupSteps(s.warmup_num_steps);
  const double high = s.warmup_max_lr.value_or(lr);
  if (iteration >= steps) return high;
  return s.warmup_min_lr + (high - s.warmup_min_lr) * WarmupRatio(s.warmup_type, iteration, steps);
}

absl::Status Check(const WarmupDecayLR& s) {
  BRIGADE_RETURN_IF_ERROR(CheckSteps("WarmupDecayLR", "total_num_steps", s.total_num_steps));
  BRIGADE_RETURN_IF_ERROR(CheckRate("WarmupDecayLR", "warmup_min_lr", s.warmup_min_lr));
  BRIGADE_RETURN_IF_ERROR(CheckRate("WarmupDecayLR", "warmup_max_lr", s.warmup_max_lr));
  BRIGADE_RETURN_IF_ERROR(CheckSteps("WarmupDecayLR", "warmup_num_steps", s.warmup_num_steps));
  return CheckType("WarmupDecayLR", s.warmup_type);
}
int64_t Count(const WarmupDecayLR& s) {
  return std::max(s.total_num_steps, WarmupSteps(s.warmup_num_steps)) + 2;
}
double Rate(const WarmupDecayLR& s, double, int64_t entry) {
  const int64_t iteration = std::max<int64_t>(0, entry - 1);
  const int64_t steps = WarmupSteps(s.warmup_num_steps);
  const double left = static_cast<double>(std::max<int64_t>(0, s.total_num_steps - iteration));
  const double ratio = iteration < steps ? WarmupRatio(s.warmup_type, iteration, steps)
                                         : left / std::max<int64_t>(1, s.total_num_steps - steps);
  return s.warmup_min_lr + (s.warmup_max_lr - s.warmup_min_lr) * ratio;
}

absl::Status Check(const WarmupCosineLR& s) {
  BRIGADE_RETURN_IF_ERROR(CheckSteps("WarmupCosineLR", "total_num_steps", s.total_num_steps));
  BRIGADE_RETURN_IF_ERROR(CheckRate("WarmupCosineLR", "warmup_min_ratio", s.warmup_min_ratio));
  BRIGADE_RETURN_IF_ERROR(CheckSteps("WarmupCosineLR", "warmup_num_steps", s.warmup_num_steps));
  BRIGADE_RETURN_IF_ERROR(CheckRate("WarmupCosineLR", "cos_min_ratio", s.cos_min_ratio));
  return CheckType("WarmupCosineLR", s.warmup_type);
}
int64_t CosineSteps(const WarmupCosineLR& s) {
  return std::max<int64_t>(1, s.total_num_steps - WarmupSteps(s.warmup_num_steps));
}
int64_t Count(const WarmupCosineLR& s) {
  return WarmupSteps(s.warmup_num_steps) + CosineSteps(s) + 1;
}
double Rate(const WarmupCosineLR& s, double lr, int64_t entry) {
  if (entry == 0) return 0.0;
  const int64_t iteration = entry - 1;
  const int64_t steps = WarmupSteps(s.warmup_num_steps);
  if (iteration < steps) {
    const double ratio = WarmupRatio(s.warmup_type, iteration, steps);
    return lr * (s.warmup_min_ratio + (1.0 - s.warmup_min_ratio) * ratio);
  }
  const double progress = static_cast<double>(iteration - steps + 1) / CosineSteps(s);
  const double cosine = (1.0 + std::cos(kPi * progress)) / 2.0;
  return lr * (s.cos_min_ratio + (1.0 - s.cos_min_ratio) * cosine);
}

int64_t CycleSize(const OneCycle& s) {
  return s.cycle_first_step_size + s.cycle_second_step_size.value_or(s.cycle_first_step_size);
}
bool Decays(const OneCycle& s) { return s.decay_step_size > 0 && s.decay_lr_rate > 0.0; }
absl::Status Check(const OneCycle& s) {
  constexpr char kName[] = "OneCycle";
  BRIGADE_RETURN_IF_ERROR(CheckRate(kName, "cycle_min_lr", s.cycle_min_lr));
  BRIGADE_RETURN_IF_ERROR(CheckRate(kName, "cycle_max_lr", s.cycle_max_lr));
  BRIGADE_RETURN_IF_ERROR(CheckRate(kName, "decay_lr_rate", s.decay_lr_rate));
  BRIGADE_RETURN_IF_ERROR(CheckSteps(kName, "cycle_first_step_size", s.cycle_first_step_size));
  BRIGADE_RETURN_IF_ERROR(
      CheckSteps(kName, "cycle_second_step_size", s.cycle_second_step_size.value_or(1)));
  BRIGADE_RETURN_IF_ERROR(CheckSteps(kName, "decay_step_size", s.decay_step_size, kOptionalSteps));
  BRIGADE_RETURN_IF_ERROR(
      CheckSteps(kName, "total_num_steps", s.total_num_steps, Decays(s) ? kSteps : kOptionalSteps));
  if (s.cycle_momentum) {
    return absl::InvalidArgumentError(
        "OneCycle: cycle_momentum is true, must be false: a group's betas are constants");
  }
  return absl::OkStatus();
}
int64_t Count(const OneCycle& s) {
  return std::max(CycleSize(s) + 1, Decays(s) ? s.total_num_steps : 0);
}
double Rate(const OneCycle& s, double, int64_t entry) {
  const int64_t size = CycleSize(s);
  if (entry >= size) {
    if (!Decays(s)) return s.cycle_min_lr;
    const double intervals = static_cast<double>(entry - size) / s.decay_step_size;
    return s.cycle_min_lr / (1.0 + s.decay_lr_rate * intervals);
  }
  const int64_t first = s.cycle_first_step_size;
  const double height = entry <= first ? static_cast<double>(entry) / first
                                       : static_cast<double>(size - entry) / (size - first);
  return s.cycle_min_lr + (s.cycle_max_lr - s.cycle_min_lr) * height;
}

}  // namespace

absl::Status Validate(const Schedule& schedule) {
  return std::visit([](const auto& s) { return Check(s); }, schedule);
}

bool UsesGroupRate(const Schedule& schedule) {
  if (const auto* warmup = std::get_if<WarmupLR>(&schedule)) {
    return !warmup->warmup_max_lr.has_value();
  }
  return std::holds_alternative<ConstantLR>(schedule) ||
         std::holds_alternative<WarmupCosineLR>(schedule);
}

int64_t LearningRateCount(const Schedule& schedule) {
  return std::visit([](const auto& s) { return Count(s); }, schedule);
}

std::vector<float> LearningRates(const Schedule& schedule, double lr) {
  std::vector<float> rates(static_cast<size_t>(LearningRateCount(schedule)));
  FillLearningRates(schedule, lr, absl::MakeSpan(rates));
  return rates;
}

void FillLearningRates(const Schedule& schedule, double lr, absl::Span<float> table) {
  std::visit(
      [&](const auto& s) {
        const int64_t last = Count(s) - 1;
        for (size_t i = 0; i < table.size(); ++i) {
          const int64_t entry = std::min(static_cast<int64_t>(i), last);
          table[i] = static_cast<float>(Rate(s, lr, entry));
        }
      },
      schedule);
}

}  // namespace brigade::optim
