#include <cmath>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "brigade/optim/schedule.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/train/config/config_rules.h"

namespace brigade::train {
namespace {

constexpr auto kHarmless = Rule::Kind::kHarmless;

// The rate that a schedule rises to, or from without end, where that is not the optimizer's.
std::optional<double> OwnHighestRate(const optim::Schedule& schedule) {
  if (const auto* warmup = std::get_if<optim::WarmupLR>(&schedule)) return warmup->warmup_max_lr;
  if (const auto* decay = std::get_if<optim::WarmupDecayLR>(&schedule)) return decay->warmup_max_lr;
  if (const auto* cycle = std::get_if<optim::OneCycle>(&schedule)) return cycle->cycle_max_lr;
  if (const auto* test = std::get_if<optim::LRRangeTest>(&schedule)) {
    return test->lr_range_test_min_lr;
  }
  return std::nullopt;
}

// Of a section that is off nothing has an effect, and it may say anything.
Rules PrecisionRules(const Together& together) {
  const Settings& s = together.settings;
  const optim::LossScaler& scaler = s.loss_scaler;
  const bool changes = scaler.dynamic() || !s.fp16;
  const std::string constant = "fp16.loss_scale is not 0, so the scale never changes";
  const bool is_above_minimum =
      !s.fp16 || !scaler.dynamic() ||
      scaler.min_loss_scale <= std::ldexp(1.0, scaler.initial_scale_power);
  constexpr char kTypes[] = "fp16.enabled bf16.enabled bfloat16.enabled --precision";
  // Whether there is a scale, and whether it changes.
  constexpr char kScale[] = "fp16.enabled --precision fp16.loss_scale";
  constexpr char kOn[] = "fp16.enabled --precision";
  const std::string type(precision::ShortName(TypeOf(s)));
  const std::string by_file = absl::StrCat("fp16.enabled and bf16.enabled of the file say ", type);
  const std::string masters = "master weights are fp32";
  Rules rules = {
      {"fp16.enabled", !s.fp16 || !s.bf16, "bf16.enabled is true as well", kTypes},
      {"--precision", s.flags.dtype.value_or(TypeOf(s)) == TypeOf(s), by_file, kTypes},
      {"data_types.param_dtype", s.param_dtype.value_or(TypeOf(s)) == TypeOf(s),
       absl::StrCat("by fp16 and bf16 it is ", type), kTypes},
      {"fp16.loss_scale", changes || scaler.loss_scale >= 0x1p-60f,
       "a scale that is not 0 is at least 2^-60", kOn},
      {"fp16.initial_scale_power", changes, constant, kScale, kHarmless},
      {"fp16.loss_scale_window", changes, constant, kScale, kHarmless},
      {"fp16.hysteresis", changes, constant, kScale, kHarmless},
      {"fp16.consecutive_hysteresis", changes, constant, kScale, kHarmless},
      {"fp16.min_loss_scale", changes, constant, kScale, kHarmless},
      {"fp16.min_loss_scale", is_above_minimum,
       absl::StrCat("the first scale is less, 2 to initial_scale_power, which is ",
                    scaler.initial_scale_power),
       Names({kScale, "fp16.initial_scale_power"})},
      {"fp16.initial_scale_power",
       is_above_minimum || together.said.Find("fp16.min_loss_scale") != nullptr,
       absl::StrCat("the smallest scale is more, min_loss_scale, which is ", scaler.min_loss_scale),
       Names({kScale, "fp16.min_loss_scale"})},
      {"brigade.at_minimum_loss_scale", s.fp16 && scaler.dynamic(),
       "only fp16 with a dynamic loss scale has a minimum", kScale},
      {"fp16.fp16_master_weights_and_grads", !s.fp16 || !s.fp16_masters, masters, kOn},
  };
  for (const char* const section : {"bf16", "bfloat16"}) {
    rules.push_back({absl::StrCat(section, ".bf16_master_weights_and_grads"),
                     !s.bf16 || !s.bf16_masters, masters, kTypes});
    rules.push_back({absl::StrCat(section, ".bf16_optimizer_states"), !s.bf16 || !s.bf16_states,
                     "optimizer states are fp32", kTypes});
  }
  return rules;
}

}  // namespace

Rules OptimizerRules(const Together& together) {
  const Settings& s = together.settings;
  const optim::ParameterGroup& group = s.group;
  const bool is_adam_w = s.optimizer == optim::OptimizerKind::kAdamW ||
                         (s.optimizer == optim::OptimizerKind::kAdam && s.adam_w_mode);
  const Json* const torch_adam = together.said.Find("optimizer.params.torch_adam");
  const bool torch_adam_w = is_adam_w && torch_adam != nullptr && *torch_adam == Json(true);
  const optim::Schedule& schedule = s.schedules[s.schedule];
  const auto* cycle = std::get_if<optim::OneCycle>(&schedule);
  const bool decays = cycle == nullptr || (cycle->decay_step_size > 0 && cycle->decay_lr_rate > 0);
  const std::string no_decay = "a decay needs both decay_step_size and decay_lr_rate";
  const double highest = OwnHighestRate(schedule).value_or(group.lr);
  const bool is_test = std::holds_alternative<optim::LRRangeTest>(schedule);
  const std::string own_rates =
      absl::StrCat("the schedule has rates of its own, ", is_test ? "from " : "up to ", highest,
                   is_test ? " on" : "");
  constexpr char kOwnRates[] =
      "scheduler.params.warmup_max_lr scheduler.params.cycle_max_lr "
      "scheduler.params.lr_range_test_min_lr";
  const bool is_muon = s.optimizer == optim::OptimizerKind::kMuon;
  const bool is_adafactor = s.optimizer == optim::OptimizerKind::kAdafactor;
  const bool rate_fits = !is_adafactor || !s.adafactor.relative_step;
  constexpr char kRelative[] =
      "optimizer.params.relative_step is true, by which the rate goes by the step alone";
  constexpr char kRateKeys[] = "optimizer.type optimizer.params.relative_step";
  const bool replicas_fit = (!optim::HasCodes(s.optimizer) && !is_muon && !is_adafactor) ||
                            together.sharing.replicas == 0;
  const char* const kNoReplicas =
      is_adafactor
          ? "optimizer.type is Adafactor, whose factors of matrices replicas do not exchange; "
            "AdamW has two moments of each element"
      : is_muon ? "optimizer.type is Muon, whose matrices have one moment, which replicas do not "
                  "exchange; AdamW has two of all"
                : "optimizer.type is one whose moments are codes, which replicas do not exchange; "
                  "AdamW's are fp32";
  const auto* polynomial = std::get_if<optim::PolynomialDecay>(&schedule);
  const auto* stable = std::get_if<optim::WarmupStableDecay>(&schedule);
  constexpr char kDecay[] = "scheduler.params.decay_step_size scheduler.params.decay_lr_rate";
  const Rules rules = {
      {"optimizer.params.weight_decay", !torch_adam_w,
       "with torch_adam DeepSpeed takes PyTorch's AdamW, whose default is 0.01, and else its own, "
       "whose default is 0: write which it is",
       "optimizer.type optimizer.params.adam_w_mode optimizer.params.torch_adam",
       Rule::Kind::kMissing},
      {"optimizer.params.nesterov", !group.nesterov || (group.momentum > 0 && group.dampening == 0),
       absl::StrCat("it needs momentum above 0 and dampening 0, and they are ", group.momentum,
                    " and ", group.dampening),
       "optimizer.params.momentum optimizer.params.dampening"},
      {"optimizer.params.lr", rate_fits, kRelative, kRateKeys},
      {"--lr", rate_fits, kRelative, kRateKeys},
      {"scheduler.type", rate_fits, kRelative, kRateKeys},
      {"optimizer.params.warmup_init",
       !is_adafactor || !s.adafactor.warmup_init || s.adafactor.relative_step,
       "optimizer.params.relative_step is false, whose beginning it is", kRateKeys},
      {"optimizer.params.lr", s.flags.lr.has_value() || highest == group.lr, own_rates,
       Names({kOwnRates, "--lr"}), kHarmless},
      {"--lr", highest == group.lr, own_rates, kOwnRates},
      {"scheduler.params.decay_step_size", decays || cycle->decay_step_size == 0, no_decay, kDecay},
      {"scheduler.params.decay_lr_rate", decays || cycle->decay_lr_rate == 0, no_decay, kDecay},
      {"scheduler.params.total_num_steps", decays, no_decay, kDecay},
      {"scheduler.params.total_num_steps", cycle == nullptr || !decays,
       "a decay, which never ends, is cut there", kDecay, Rule::Kind::kMissing},
      {"optimizer.params.muon_lr", !s.muon_lr.has_value() || group.lr > 0,
       "it goes by the schedule of lr, which is 0", "optimizer.params.lr --lr"},
      {"brigade.replicas", replicas_fit, kNoReplicas, "optimizer.type --replicas"},
      {"--replicas", replicas_fit, kNoReplicas, "optimizer.type"},
      {"scheduler.params.lr_end", polynomial == nullptr || polynomial->lr_end <= group.lr,
       absl::StrCat("the optimizer's rate is less, ", group.lr), "optimizer.params.lr --lr"},
      {"scheduler.params.num_training_steps",
       stable == nullptr ||
           stable->num_warmup_steps + stable->num_decay_steps <= stable->num_training_steps,
       stable == nullptr ? ""
                         : absl::StrCat("warm-up and decay have ", stable->num_warmup_steps,
                                        " and ", stable->num_decay_steps, " steps"),
       "scheduler.params.num_warmup_steps scheduler.params.num_decay_steps"},
  };
  return Joined({rules, PrecisionRules(together)});
}

}  // namespace brigade::train
