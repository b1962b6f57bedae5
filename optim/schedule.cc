#include "brigade/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/value_range.h"
#include "brigade/precision/rounding.h"

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

int64_t Count(const LRRangeTest& s) { return s.total_num_steps; }
double Rate(const LRRangeTest& s, double, int64_t entry) {
  double intervals = static_cast<double>(entry) / s.lr_range_test_step_size;
  if (s.lr_range_test_staircase) intervals = std::floor(intervals);
  return s.lr_range_test_min_lr * (1.0 + s.lr_range_test_step_rate * intervals);
}
absl::Status Check(const LRRangeTest& s) {
  constexpr char kName[] = "LRRangeTest";
  BRIGADE_RETURN_IF_ERROR(CheckRate(kName, "lr_range_test_min_lr", s.lr_range_test_min_lr));
  BRIGADE_RETURN_IF_ERROR(CheckRate(kName, "lr_range_test_step_rate", s.lr_range_test_step_rate));
  BRIGADE_RETURN_IF_ERROR(CheckSteps(kName, "lr_range_test_step_size", s.lr_range_test_step_size));
  BRIGADE_RETURN_IF_ERROR(CheckSteps(kName, "total_num_steps", s.total_num_steps));
  return CheckRate(kName, "the last rate", Rate(s, 0.0, Count(s) - 1));
}

// Of transformers. The share of a fall that is behind an entry, from 0 to 1.
template <typename S>
double Progress(const S& s, int64_t entry) {
  const int64_t steps = std::max<int64_t>(1, s.num_training_steps - s.num_warmup_steps);
  return std::min(1.0, static_cast<double>(entry - s.num_warmup_steps) / steps);
}

// The factor of an entry of the warm-up, or what `after` gives for those behind it.
template <typename S, typename After>
double WithWarmup(const S& s, int64_t entry, const After& after) {
  return entry < s.num_warmup_steps ? static_cast<double>(entry) / s.num_warmup_steps : after();
}

template <typename S>
absl::Status CheckPhases(absl::string_view name, const S& s) {
  BRIGADE_RETURN_IF_ERROR(CheckSteps(name, "num_warmup_steps", s.num_warmup_steps, kOptionalSteps));
  return CheckSteps(name, "num_training_steps", s.num_training_steps);
}
template <typename S>
int64_t CountPhases(const S& s) {
  return std::max(s.num_training_steps, s.num_warmup_steps + 1) + 1;
}

double Wave(double waves) { return 0.5 * (1.0 + std::cos(kPi * 2.0 * waves)); }

absl::Status Check(const ConstantWithWarmup& s) {
  return CheckSteps("constant_with_warmup", "num_warmup_steps", s.num_warmup_steps, kOptionalSteps);
}
int64_t Count(const ConstantWithWarmup& s) { return s.num_warmup_steps + 1; }
double Rate(const ConstantWithWarmup& s, double lr, int64_t entry) {
  return lr * WithWarmup(s, entry, [] { return 1.0; });
}

absl::Status Check(const LinearWithWarmup& s) { return CheckPhases("linear", s); }
int64_t Count(const LinearWithWarmup& s) { return CountPhases(s); }
double Rate(const LinearWithWarmup& s, double lr, int64_t entry) {
  return lr * WithWarmup(s, entry, [&] {
           // With a warm-up to the end and beyond, 0 at once.
           const auto left = static_cast<double>(s.num_training_steps - entry);
           const int64_t steps = std::max<int64_t>(1, s.num_training_steps - s.num_warmup_steps);
           return std::max(0.0, left / static_cast<double>(steps));
         });
}

absl::Status Check(const CosineWithWarmup& s) {
  BRIGADE_RETURN_IF_ERROR(CheckPhases("cosine", s));
  BRIGADE_RETURN_IF_ERROR(CheckRate("cosine", "num_cycles", s.num_cycles));
  return CheckInRange("cosine", "min_lr_rate", -1, s.min_lr_rate, kernels::kUnit);
}
int64_t Count(const CosineWithWarmup& s) { return CountPhases(s); }
double Rate(const CosineWithWarmup& s, double lr, int64_t entry) {
  return lr * WithWarmup(s, entry, [&] {
           return s.min_lr_rate + (1.0 - s.min_lr_rate) * Wave(s.num_cycles * Progress(s, entry));
         });
}

absl::Status Check(const CosineWithRestarts& s) {
  BRIGADE_RETURN_IF_ERROR(CheckPhases("cosine_with_restarts", s));
  return CheckSteps("cosine_with_restarts", "num_cycles", s.num_cycles);
}
int64_t Count(const CosineWithRestarts& s) { return CountPhases(s); }
double Rate(const CosineWithRestarts& s, double lr, int64_t entry) {
  return lr * WithWarmup(s, entry, [&] {
           const double progress = Progress(s, entry);
           if (progress >= 1.0) return 0.0;
           const double cycles = static_cast<double>(s.num_cycles) * progress;
           return Wave(0.5 * (cycles - std::floor(cycles)));
         });
}

absl::Status Check(const PolynomialDecay& s) {
  BRIGADE_RETURN_IF_ERROR(CheckPhases("polynomial", s));
  BRIGADE_RETURN_IF_ERROR(CheckRate("polynomial", "lr_end", s.lr_end));
  return CheckInRange("polynomial", "power", -1, s.power, kernels::kPositive);
}
int64_t Count(const PolynomialDecay& s) { return CountPhases(s); }
double Rate(const PolynomialDecay& s, double lr, int64_t entry) {
  if (entry < s.num_warmup_steps) return lr * static_cast<double>(entry) / s.num_warmup_steps;
  if (entry > s.num_training_steps) return s.lr_end;
  return s.lr_end + (lr - s.lr_end) * std::pow(1.0 - Progress(s, entry), s.power);
}

absl::Status Check(const InverseSqrt& s) {
  BRIGADE_RETURN_IF_ERROR(CheckPhases("inverse_sqrt", s));
  return CheckSteps("inverse_sqrt", "timescale", s.timescale.value_or(1));
}
int64_t Count(const InverseSqrt& s) {
  return std::max(s.num_training_steps, s.num_warmup_steps + 1);
}
double Rate(const InverseSqrt& s, double lr, int64_t entry) {
  constexpr int64_t kWithoutWarmup = 10000;
  const int64_t otherwise = s.num_warmup_steps > 0 ? s.num_warmup_steps : kWithoutWarmup;
  const auto timescale = static_cast<double>(s.timescale.value_or(otherwise));
  return lr * WithWarmup(s, entry, [&] {
           const auto since = static_cast<double>(entry - s.num_warmup_steps);
           return 1.0 / std::sqrt((since + timescale) / timescale);
         });
}

absl::Status CheckRamp(absl::string_view field, RampType type) {
  if (type == RampType::kLinear || type == RampType::kCosine || type == RampType::kOneMinusSqrt) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("warmup_stable_decay: ", field, " is ",
                                                 static_cast<int>(type),
                                                 ", must be kLinear, kCosine or kOneMinusSqrt"));
}
absl::Status Check(const WarmupStableDecay& s) {
  constexpr char kName[] = "warmup_stable_decay";
  BRIGADE_RETURN_IF_ERROR(CheckPhases(kName, s));
  BRIGADE_RETURN_IF_ERROR(CheckSteps(kName, "num_decay_steps", s.num_decay_steps));
  BRIGADE_RETURN_IF_ERROR(CheckInRange(kName, "min_lr_ratio", -1, s.min_lr_ratio, kernels::kUnit));
  BRIGADE_RETURN_IF_ERROR(CheckRate(kName, "num_cycles", s.num_cycles));
  BRIGADE_RETURN_IF_ERROR(CheckRamp("warmup_type", s.warmup_type));
  BRIGADE_RETURN_IF_ERROR(CheckRamp("decay_type", s.decay_type));
  if (s.num_warmup_steps + s.num_decay_steps <= s.num_training_steps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kName, ": num_training_steps is ", s.num_training_steps, ", fewer than the ",
                   s.num_warmup_steps, " of num_warmup_steps and the ", s.num_decay_steps,
                   " of num_decay_steps"));
}
int64_t Count(const WarmupStableDecay& s) { return s.num_training_steps + 1; }
double Rate(const WarmupStableDecay& s, double lr, int64_t entry) {
  const auto between = [&](double share) {
    return lr * (s.min_lr_ratio + (1.0 - s.min_lr_ratio) * share);
  };
  if (entry < s.num_warmup_steps) {
    const double x = static_cast<double>(entry) / s.num_warmup_steps;
    return between(s.warmup_type == RampType::kLinear   ? x
                   : s.warmup_type == RampType::kCosine ? 0.5 * (1.0 - std::cos(kPi * x))
                                                        : 1.0 - std::sqrt(1.0 - x));
  }
  const int64_t decayed = entry - (s.num_training_steps - s.num_decay_steps);
  if (decayed < 0) return lr;
  if (decayed >= s.num_decay_steps) return between(0.0);
  const double x = static_cast<double>(decayed) / s.num_decay_steps;
  return between(s.decay_type == RampType::kLinear   ? 1.0 - x
                 : s.decay_type == RampType::kCosine ? Wave(s.num_cycles * x)
                                                     : 1.0 - std::sqrt(x));
}

}  // namespace

absl::Status Validate(const Schedule& schedule) {
  return std::visit([](const auto& s) { return Check(s); }, schedule);
}

absl::Status Validate(const Schedule& schedule, double lr) {
  BRIGADE_RETURN_IF_ERROR(Validate(schedule));
  const auto* polynomial = std::get_if<PolynomialDecay>(&schedule);
  if (polynomial == nullptr || polynomial->lr_end <= lr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("polynomial: lr_end is ", polynomial->lr_end,
                                                 ", must be at most the group's rate, ", lr));
}

bool UsesGroupRate(const Schedule& schedule) {
  if (const auto* warmup = std::get_if<WarmupLR>(&schedule)) {
    return !warmup->warmup_max_lr.has_value();
  }
  return !std::holds_alternative<WarmupDecayLR>(schedule) &&
         !std::holds_alternative<OneCycle>(schedule) &&
         !std::holds_alternative<LRRangeTest>(schedule);
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
