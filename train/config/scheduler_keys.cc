#include <utility>
#include <variant>

#include "brigade/optim/schedule.h"
#include "brigade/train/config/config_sections.h"

namespace brigade::train {
namespace {

constexpr char kMustBeGiven[] = "it has no default";

// Of a schedule: its own, and what all have.
Keys ScheduleKeys(Keys keys) {
  keys.push_back({"last_batch_iteration", Only(-1, "schedules begin at the beginning")});
  return keys;
}

template <typename Schedule>
Key WarmupType(Schedule& schedule) {
  return {"warmup_type",
          OneOf<optim::WarmupType>(&schedule.warmup_type, {{"log", optim::WarmupType::kLog},
                                                           {"linear", optim::WarmupType::kLinear}}),
          "how the rate rises"};
}

template <typename Schedule>
Key WarmupSteps(Schedule& schedule) {
  // Schedules themselves take 1 as 2, and have no 0.
  return {"warmup_num_steps",
          Rewritten(Whole(&schedule.warmup_num_steps, kStepsOrNone),
                    [](const Json& json) { return json == Json(0) ? Json(2) : json; }),
          "steps in which the rate rises; 0 and 1 count as 2, as in DeepSpeed"};
}

// The rates between which one rises.
template <typename Schedule>
Keys WithWarmupRates(Settings& s, Schedule& schedule, Keys keys) {
  keys.push_back({"warmup_min_lr", Number(&schedule.warmup_min_lr, kNotNegative),
                  "the rate of the first step"});
  keys.push_back({.name = "warmup_max_lr",
                  .value = Number(&schedule.warmup_max_lr, kNotNegative),
                  .meaning = "the rate to which it rises; of WarmupLR by default the optimizer's",
                  .automatic = ByRate(s)});
  keys.push_back(WarmupSteps(schedule));
  keys.push_back(WarmupType(schedule));
  return ScheduleKeys(std::move(keys));
}

constexpr char kHasFallen[] = "the step at which the rate has fallen; \"auto\": `--steps`";

// Where a schedule ends.
Key LastStep(Settings& s, const char* name, int64_t* steps, const char* meaning = kHasFallen) {
  return {.name = name,
          .value = Whole(steps, kSteps),
          .meaning = meaning,
          .required = kMustBeGiven,
          .automatic = FromFlag("--steps", s.flags.steps > 0, s.flags.steps)};
}

Keys OneCycleKeys(optim::OneCycle& cycle) {
  constexpr char kMomentum[] = "momentum is a constant here";
  return ScheduleKeys({
      {.name = "cycle_min_lr",
       .value = Number(&cycle.cycle_min_lr, kNotNegative),
       .meaning = "the rate at both ends of the cycle",
       .required = kMustBeGiven},
      {.name = "cycle_max_lr",
       .value = Number(&cycle.cycle_max_lr, kNotNegative),
       .meaning = "the rate in its middle",
       .required = kMustBeGiven},
      {"decay_lr_rate", Number(&cycle.decay_lr_rate, kNotNegative),
       "how fast the rate falls after the cycle"},
      {"cycle_first_step_size", Whole(&cycle.cycle_first_step_size, kSteps),
       "steps in which it rises"},
      {"cycle_second_step_size",
       Otherwise(Whole(&cycle.cycle_second_step_size, kSteps), "as the first"),
       "steps in which it falls"},
      {"decay_step_size", Whole(&cycle.decay_step_size, kStepsOrNone),
       "steps between two falls after the cycle"},
      {"total_num_steps", Otherwise(Whole(&cycle.total_num_steps, kSteps), "none"),
       "Brigade's: where a decay, which never ends, is cut"},
      {.name = "cycle_momentum",
       .value = Only(false, kMomentum),
       .required = "DeepSpeed's default is true, but momentum is a constant here: write false"},
      {"cycle_first_stair_count", Only(0, "the rate rises in each step")},
      {"cycle_second_stair_count", Only(nullptr, "the rate falls in each step")},
      {"cycle_min_mom", Tuning(0.8, kMomentum)},
      {"cycle_max_mom", Tuning(0.9, kMomentum)},
      {"decay_mom_rate", Tuning(0.0, kMomentum)},
  });
}

Keys RangeTestKeys(Settings& s) {
  auto& test = std::get<optim::LRRangeTest>(s.schedules[5]);
  return ScheduleKeys({
      {"lr_range_test_min_lr", Number(&test.lr_range_test_min_lr, kNotNegative),
       "the rate of the first step"},
      {"lr_range_test_step_size", Whole(&test.lr_range_test_step_size, kSteps),
       "steps of an interval"},
      {"lr_range_test_step_rate", Number(&test.lr_range_test_step_rate, kNotNegative),
       "how much the rate rises in an interval, as a share of the first"},
      {"lr_range_test_staircase", Flag(&test.lr_range_test_staircase),
       "true: it rises at the end of each interval alone"},
      LastStep(s, "total_num_steps", &test.total_num_steps,
               "Brigade's: where the rise, which never ends, is cut; \"auto\": `--steps`"),
  });
}

// Of Hugging Face's schedules, names and defaults of src/transformers/optimization.py.

template <typename Schedule>
Key PlainWarmup(Schedule& schedule) {
  return {"num_warmup_steps", Whole(&schedule.num_warmup_steps, kStepsOrNone),
          "steps in which the rate rises from 0"};
}

// With `more` keys behind those that all of them have.
template <typename Schedule>
Keys PhaseKeys(Settings& s, Schedule& schedule, Keys more, const char* meaning = kHasFallen) {
  Keys keys = {PlainWarmup(schedule),
               LastStep(s, "num_training_steps", &schedule.num_training_steps, meaning)};
  for (Key& key : more) keys.push_back(std::move(key));
  return keys;
}

Key Waves(double* waves) {
  return {"num_cycles", Number(waves, kNotNegative), "waves of the cosine: 0.5 goes down once"};
}

Value Ramp(optim::RampType* type) {
  return OneOf<optim::RampType>(type, {{"linear", optim::RampType::kLinear},
                                       {"cosine", optim::RampType::kCosine},
                                       {"1-sqrt", optim::RampType::kOneMinusSqrt}});
}

Keys StableKeys(Settings& s) {
  auto& stable = std::get<optim::WarmupStableDecay>(s.schedules[13]);
  return PhaseKeys(
      s, stable,
      {
          {.name = "num_decay_steps",
           .value = Whole(&stable.num_decay_steps, kSteps),
           .meaning = "steps in which the rate falls",
           .required = kMustBeGiven},
          {"num_stable_steps", NotSupported("num_training_steps says it: the sum of all phases")},
          {"warmup_type", Ramp(&stable.warmup_type), "how the rate rises"},
          {"decay_type", Ramp(&stable.decay_type), "how it falls"},
          {"min_lr_ratio", Number(&stable.min_lr_ratio, kUnit),
           "the share of the optimizer's rate at both ends"},
          Waves(&stable.num_cycles),
      },
      "steps of all phases, at the end of which the rate has fallen; \"auto\": `--steps`");
}

Keys TransformersTypes(Settings& s) {
  auto& constant = std::get<optim::ConstantWithWarmup>(s.schedules[6]);
  auto& linear = std::get<optim::LinearWithWarmup>(s.schedules[7]);
  auto& cosine = std::get<optim::CosineWithWarmup>(s.schedules[8]);
  auto& least = std::get<optim::CosineWithWarmup>(s.schedules[9]);
  auto& restarts = std::get<optim::CosineWithRestarts>(s.schedules[10]);
  auto& polynomial = std::get<optim::PolynomialDecay>(s.schedules[11]);
  auto& inverse = std::get<optim::InverseSqrt>(s.schedules[12]);
  return {
      {"constant", Set(&s.schedule, 0), "Hugging Face's: the optimizer's rate"},
      {"constant_with_warmup",
       Set(&s.schedule, 6),
       "Hugging Face's, as all below: the rate rises, and stays",
       {PlainWarmup(constant)}},
      {"linear", Set(&s.schedule, 7), "the rate rises, and falls to 0 in a line",
       PhaseKeys(s, linear, {})},
      {"cosine", Set(&s.schedule, 8), "the rate rises, and falls to 0 as a cosine",
       PhaseKeys(s, cosine, {Waves(&cosine.num_cycles)})},
      {"cosine_with_min_lr", Set(&s.schedule, 9), "the same, to a share of the optimizer's rate",
       PhaseKeys(s, least,
                 {Waves(&least.num_cycles),
                  {.name = "min_lr_rate",
                   .value = Number(&least.min_lr_rate, kUnit),
                   .meaning = "that share",
                   .required = kMustBeGiven},
                  {"min_lr", NotSupported("min_lr_rate, a share of the optimizer's rate")}})},
      {"cosine_with_restarts", Set(&s.schedule, 10),
       "the rate rises, and falls to 0 as a cosine several times, beginning anew each time",
       PhaseKeys(s, restarts,
                 {{"num_cycles", Whole(&restarts.num_cycles, kSteps), "how many times"}})},
      {"polynomial", Set(&s.schedule, 11), "the rate rises, and falls as a power of what is left",
       PhaseKeys(s, polynomial,
                 {{"lr_end", Number(&polynomial.lr_end, kNotNegative),
                   "the last rate, at most the optimizer's"},
                  {"power", Number(&polynomial.power, kPositive), "that power"}})},
      {"inverse_sqrt", Set(&s.schedule, 12),
       "the rate rises, and falls as the inverse of the root of the steps",
       PhaseKeys(
           s, inverse,
           {{"timescale",
             Otherwise(Whole(&inverse.timescale, kSteps), "`num_warmup_steps`, and 10000 without"),
             "steps behind the warm-up in which it falls to the root of a half"}},
           "Brigade's: where the fall, which never ends, is cut; \"auto\": `--steps`")},
      {"warmup_stable_decay", Set(&s.schedule, 13),
       "the rate rises, stays, and falls in the last steps", StableKeys(s)},
      {"reduce_lr_on_plateau", NotSupported()},
      {"cosine_warmup_with_min_lr", NotSupported()},
  };
}

}  // namespace

// Parameters and defaults as in deepspeed/runtime/lr_schedules.py.
Key SchedulerKey(Settings& s) {
  auto& warmup = std::get<optim::WarmupLR>(s.schedules[1]);
  auto& decay = std::get<optim::WarmupDecayLR>(s.schedules[2]);
  auto& cosine = std::get<optim::WarmupCosineLR>(s.schedules[3]);
  auto& cycle = std::get<optim::OneCycle>(s.schedules[4]);
  Keys types = {
      {"WarmupLR", Set(&s.schedule, 1), "the rate rises, and stays",
       WithWarmupRates(s, warmup, {})},
      {"WarmupDecayLR", Set(&s.schedule, 2), "the rate rises, and falls to 0 in a line",
       WithWarmupRates(s, decay, {LastStep(s, "total_num_steps", &decay.total_num_steps)})},
      {"WarmupCosineLR", Set(&s.schedule, 3),
       "the rate rises, and falls as a cosine; rates are shares of the optimizer's",
       ScheduleKeys({
           LastStep(s, "total_num_steps", &cosine.total_num_steps),
           {"warmup_min_ratio", Number(&cosine.warmup_min_ratio, kNotNegative),
            "the share of the first step"},
           WarmupSteps(cosine),
           {"cos_min_ratio", Number(&cosine.cos_min_ratio, kNotNegative),
            "the share of the last step"},
           WarmupType(cosine),
       })},
      {"OneCycle", Set(&s.schedule, 4), "the rate rises, falls, and decays", OneCycleKeys(cycle)},
      {"LRRangeTest", Set(&s.schedule, 5), "the rate rises all the time, to find the highest",
       RangeTestKeys(s)},
  };
  for (Key& key : TransformersTypes(s)) types.push_back(std::move(key));
  return {.name = "scheduler",
          .meaning =
              "How the learning rate changes from step to step. Without it the rate is a "
              "constant.",
          .types = std::move(types)};
}

}  // namespace brigade::train
