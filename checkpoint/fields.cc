#include "brigade/checkpoint/fields.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>
#include <type_traits>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/options.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype.h"

namespace brigade::checkpoint {
namespace {

template <typename T>
struct Word {
  const char* text;
  T value;
};

constexpr Word<bool> kBools[] = {{"false", false}, {"true", true}};
constexpr Word<optim::OptimizerKind> kOptimizers[] = {
    {"AdamW", optim::OptimizerKind::kAdamW},
    {"Adam", optim::OptimizerKind::kAdam},
    {"SGD", optim::OptimizerKind::kSgd},
    {"Lion", optim::OptimizerKind::kLion},
    {"OneBitAdam", optim::OptimizerKind::kOneBitAdam},
    {"Lamb", optim::OptimizerKind::kLamb},
    {"OneBitLamb", optim::OptimizerKind::kOneBitLamb},
    {"ZeroOneAdam", optim::OptimizerKind::kZeroOneAdam},
    {"AdamW8bit", optim::OptimizerKind::kAdamW8},
    {"Muon", optim::OptimizerKind::kMuon},
    {"Adafactor", optim::OptimizerKind::kAdafactor},
    {"Adam8bit", optim::OptimizerKind::kAdam8}};
constexpr Word<optim::WarmupType> kWarmups[] = {{"log", optim::WarmupType::kLog},
                                                {"linear", optim::WarmupType::kLinear}};
constexpr Word<optim::RampType> kRamps[] = {{"linear", optim::RampType::kLinear},
                                            {"cosine", optim::RampType::kCosine},
                                            {"1-sqrt", optim::RampType::kOneMinusSqrt}};
constexpr Word<kernels::AtMinimum> kAtMinimum[] = {{"error", kernels::AtMinimum::kError},
                                                   {"clamp", kernels::AtMinimum::kClamp}};
constexpr Word<zero::Accumulation> kAccumulation[] = {
    {"every_micro_batch", zero::Accumulation::kEveryMicroBatch},
    {"at_boundary", zero::Accumulation::kAtBoundary}};
constexpr char kNone[] = "none";

// All values of a type that has words instead of numbers.
template <typename T>
constexpr auto& WordsOf() {
  if constexpr (std::is_same_v<T, bool>) {
    return kBools;
  } else if constexpr (std::is_same_v<T, optim::OptimizerKind>) {
    return kOptimizers;
  } else if constexpr (std::is_same_v<T, optim::WarmupType>) {
    return kWarmups;
  } else if constexpr (std::is_same_v<T, optim::RampType>) {
    return kRamps;
  } else if constexpr (std::is_same_v<T, zero::Accumulation>) {
    return kAccumulation;
  } else {
    static_assert(std::is_same_v<T, kernels::AtMinimum>);
    return kAtMinimum;
  }
}

template <typename T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

template <typename T>
std::string TextOf(const T& value) {
  if constexpr (kIsNumber<T>) {
    char text[32];
    return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
  } else {
    for (const Word<T>& word : WordsOf<T>()) {
      if (word.value == value) return word.text;
    }
    return "";
  }
}

template <typename T>
std::string TextOf(const std::optional<T>& value) {
  return value.has_value() ? TextOf(*value) : kNone;
}

// Whether `text` is what TextOf writes for some value. NaN is a value of no field.
template <typename T>
bool Parse(const std::string& text, T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    // Not std::from_chars, which LLVM's library has for them from version 20 on. It takes more than
    // TextOf writes, which the comparison does not.
    bool is_number = false;
    if constexpr (std::is_same_v<T, float>) {
      is_number = absl::SimpleAtof(text, &value);
    } else {
      is_number = absl::SimpleAtod(text, &value);
    }
    return is_number && value == value && TextOf(value) == text;
  } else if constexpr (kIsNumber<T>) {
    const auto error = std::from_chars(text.data(), text.data() + text.size(), value).ec;
    return error == std::errc() && TextOf(value) == text;
  } else {
    for (const Word<T>& word : WordsOf<T>()) {
      if (text != word.text) continue;
      value = word.value;
      return true;
    }
    return false;
  }
}

template <typename T>
bool Parse(const std::string& text, std::optional<T>& value) {
  value.reset();
  return text == kNone || Parse(text, value.emplace());
}

// Each visit(name, field) of a struct, in the order in which they are written. The bindings have as
// many names as the struct has members: with a new one they do not compile, until it is visited.

template <typename State, typename Visit>
void VisitState(State& state, Visit visit) {
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, reserved] = state;
  visit("step", state.step);
  visit("iteration", state.iteration);
  visit("last_overflow", state.last_overflow);
  visit("grad_norm", state.grad_norm);
  visit("loss_scale", state.loss_scale);
  visit("grad_multiplier", state.grad_multiplier);
  visit("hysteresis", state.hysteresis);
  visit("skip", state.skip);
  visit("stuck_at_minimum", state.stuck_at_minimum);
}

template <typename Scaler, typename Visit>
void VisitScaler(Scaler& scaler, Visit visit) {
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i] = scaler;
  visit("loss_scale", scaler.loss_scale);
  visit("initial_scale_power", scaler.initial_scale_power);
  visit("loss_scale_window", scaler.loss_scale_window);
  visit("hysteresis", scaler.hysteresis);
  visit("consecutive_hysteresis", scaler.consecutive_hysteresis);
  visit("min_loss_scale", scaler.min_loss_scale);
  visit("max_loss_scale", scaler.max_loss_scale);
  visit("at_minimum", scaler.at_minimum);
  visit("check_overflow", scaler.check_overflow);
}

// Without rate and schedule, which WriteRate writes, and what is LAMB's alone.
template <typename Group, typename Visit>
void VisitGroup(Group& group, Visit visit) {
  [[maybe_unused]] const auto& [lr, schedule, c, d, e, f, min_trust, max_trust, i, j, k] = group;
  visit("weight_decay", group.weight_decay);
  visit("beta1", group.beta1);
  visit("beta2", group.beta2);
  visit("eps", group.eps);
  visit("momentum", group.momentum);
  visit("dampening", group.dampening);
  visit("nesterov", group.nesterov);
}

template <typename Settings, typename Visit>
void VisitAdafactor(Settings& settings, Visit visit) {
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g] = settings;
  visit("eps1", settings.eps1);
  visit("eps2", settings.eps2);
  visit("clip_threshold", settings.clip_threshold);
  visit("decay_rate", settings.decay_rate);
  visit("scale_parameter", settings.scale_parameter);
  visit("relative_step", settings.relative_step);
  visit("warmup_init", settings.warmup_init);
}

template <typename Group, typename Visit>
void VisitTrust(Group& group, Visit visit) {
  visit("min_trust", group.min_trust);
  visit("max_trust", group.max_trust);
}

struct ScheduleVisitor {
  template <typename T, typename Visit>
  static void Each(T& schedule, Visit visit) {
    using S = std::remove_const_t<T>;
    if constexpr (std::is_same_v<S, optim::WarmupLR>) {
      [[maybe_unused]] const auto& [a, b, c, d] = schedule;
      visit("warmup_min_lr", schedule.warmup_min_lr);
      visit("warmup_max_lr", schedule.warmup_max_lr);
      visit("warmup_num_steps", schedule.warmup_num_steps);
      visit("warmup_type", schedule.warmup_type);
    } else if constexpr (std::is_same_v<S, optim::WarmupDecayLR>) {
      [[maybe_unused]] const auto& [a, b, c, d, e] = schedule;
      visit("total_num_steps", schedule.total_num_steps);
      visit("warmup_min_lr", schedule.warmup_min_lr);
      visit("warmup_max_lr", schedule.warmup_max_lr);
      visit("warmup_num_steps", schedule.warmup_num_steps);
      visit("warmup_type", schedule.warmup_type);
    } else if constexpr (std::is_same_v<S, optim::WarmupCosineLR>) {
      [[maybe_unused]] const auto& [a, b, c, d, e] = schedule;
      visit("total_num_steps", schedule.total_num_steps);
      visit("warmup_min_ratio", schedule.warmup_min_ratio);
      visit("warmup_num_steps", schedule.warmup_num_steps);
      visit("cos_min_ratio", schedule.cos_min_ratio);
      visit("warmup_type", schedule.warmup_type);
    } else if constexpr (std::is_same_v<S, optim::OneCycle>) {
      [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h] = schedule;
      visit("cycle_min_lr", schedule.cycle_min_lr);
      visit("cycle_max_lr", schedule.cycle_max_lr);
      visit("decay_lr_rate", schedule.decay_lr_rate);
      visit("cycle_first_step_size", schedule.cycle_first_step_size);
      visit("cycle_second_step_size", schedule.cycle_second_step_size);
      visit("decay_step_size", schedule.decay_step_size);
      visit("total_num_steps", schedule.total_num_steps);
      visit("cycle_momentum", schedule.cycle_momentum);
    } else if constexpr (std::is_same_v<S, optim::LRRangeTest>) {
      [[maybe_unused]] const auto& [a, b, c, d, e] = schedule;
      visit("lr_range_test_min_lr", schedule.lr_range_test_min_lr);
      visit("lr_range_test_step_size", schedule.lr_range_test_step_size);
      visit("lr_range_test_step_rate", schedule.lr_range_test_step_rate);
      visit("lr_range_test_staircase", schedule.lr_range_test_staircase);
      visit("total_num_steps", schedule.total_num_steps);
    } else if constexpr (std::is_same_v<S, optim::ConstantWithWarmup>) {
      [[maybe_unused]] const auto& [a] = schedule;
      visit("num_warmup_steps", schedule.num_warmup_steps);
    } else if constexpr (!std::is_empty_v<S>) {
      visit("num_warmup_steps", schedule.num_warmup_steps);
      visit("num_training_steps", schedule.num_training_steps);
      Shape(schedule, visit);
    } else {
      static_assert(std::is_same_v<S, optim::ConstantLR>);
    }
  }

 private:
  // Of transformers' schedules: what each has beside the steps of its phases.
  template <typename T, typename Visit>
  static void Shape(T& schedule, Visit visit) {
    using S = std::remove_const_t<T>;
    if constexpr (std::is_same_v<S, optim::CosineWithWarmup>) {
      [[maybe_unused]] const auto& [a, b, c, d] = schedule;
      visit("num_cycles", schedule.num_cycles);
      visit("min_lr_rate", schedule.min_lr_rate);
    } else if constexpr (std::is_same_v<S, optim::CosineWithRestarts>) {
      [[maybe_unused]] const auto& [a, b, c] = schedule;
      visit("num_cycles", schedule.num_cycles);
    } else if constexpr (std::is_same_v<S, optim::PolynomialDecay>) {
      [[maybe_unused]] const auto& [a, b, c, d] = schedule;
      visit("lr_end", schedule.lr_end);
      visit("power", schedule.power);
    } else if constexpr (std::is_same_v<S, optim::InverseSqrt>) {
      [[maybe_unused]] const auto& [a, b, c] = schedule;
      visit("timescale", schedule.timescale);
    } else if constexpr (std::is_same_v<S, optim::WarmupStableDecay>) {
      [[maybe_unused]] const auto& [a, b, c, d, e, f, g] = schedule;
      visit("num_decay_steps", schedule.num_decay_steps);
      visit("warmup_type", schedule.warmup_type);
      visit("decay_type", schedule.decay_type);
      visit("min_lr_ratio", schedule.min_lr_ratio);
      visit("num_cycles", schedule.num_cycles);
    } else {
      static_assert(std::is_same_v<S, optim::LinearWithWarmup>);
      [[maybe_unused]] const auto& [a, b] = schedule;
    }
  }
};

// In the order of optim::Schedule.
constexpr const char* kSchedules[] = {"ConstantLR",           "WarmupLR",   "WarmupDecayLR",
                                      "WarmupCosineLR",       "OneCycle",   "LRRangeTest",
                                      "constant_with_warmup", "linear",     "cosine",
                                      "cosine_with_restarts", "polynomial", "inverse_sqrt",
                                      "warmup_stable_decay"};
static_assert(std::variant_size_v<optim::Schedule> == std::size(kSchedules));

template <size_t kIndex = 0>
bool SetKind(absl::string_view name, optim::Schedule& schedule) {
  if constexpr (kIndex < std::size(kSchedules)) {
    if (name != kSchedules[kIndex]) return SetKind<kIndex + 1>(name, schedule);
    schedule.emplace<kIndex>();
    return true;
  }
  return false;
}

// Calls `visit_all` with a visitor that adds what it visits to `fields`, with `prefix` before the
// names.
template <typename VisitAll>
void Write(Fields& fields, const std::string& prefix, VisitAll visit_all) {
  visit_all([&](absl::string_view name, const auto& value) {
    fields[absl::StrCat(prefix, name)] = TextOf(value);
  });
}

// Takes fields, each once.
class Reader {
 public:
  explicit Reader(const Fields& fields) : fields_(fields) {}

  // Null if there is none.
  const std::string* Take(const std::string& name) {
    const auto found = fields_.find(name);
    if (found == fields_.end()) {
      Note(absl::StrCat(name, " is missing"));
      return nullptr;
    }
    taken_.insert(name);
    return &found->second;
  }
  template <typename T>
  void Take(const std::string& name, T& value) {
    const std::string* const text = Take(name);
    if (text != nullptr && !Parse(*text, value)) NoSuchValue(name, *text);
  }
  void NoSuchValue(absl::string_view name, absl::string_view text) {
    Note(absl::StrCat(name, " cannot be ", device::Quoted(text)));
  }

  // The first error; a field that was not taken is one.
  absl::Status Finish() {
    for (const auto& field : fields_) {
      if (taken_.count(field.first) == 0) {
        Note(absl::StrCat(device::Quoted(field.first), " is not known"));
      }
    }
    return status_;
  }

 private:
  void Note(const std::string& error) { status_.Update(absl::InvalidArgumentError(error)); }

  const Fields& fields_;
  std::set<std::string> taken_;
  absl::Status status_;
};

std::string GroupName(size_t group) { return absl::StrCat("groups[", group, "]"); }

bool HasFieldOf(const Fields& fields, const std::string& group) {
  const std::string begin = group + ".";
  const auto found = fields.lower_bound(begin);
  return found != fields.end() && absl::StartsWith(found->first, begin);
}

void WriteRate(size_t group, double lr, const optim::Schedule& schedule, Fields& fields) {
  const std::string name = GroupName(group);
  fields[name + ".lr"] = TextOf(lr);
  fields[name + ".schedule"] = kSchedules[schedule.index()];
  std::visit(
      [&](const auto& each) {
        Write(fields, name + ".schedule.", [&](auto visit) { ScheduleVisitor::Each(each, visit); });
      },
      schedule);
}

bool IsOf(absl::string_view name, absl::string_view whole) {
  return absl::StartsWith(name, whole) &&
         (name.size() == whole.size() || name[whole.size()] == '.' || name[whole.size()] == '[');
}

Fields Without(Fields fields, absl::Span<const std::string> names) {
  for (auto field = fields.begin(); field != fields.end();) {
    const bool is_left_out = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return IsOf(field->first, name);
    });
    field = is_left_out ? fields.erase(field) : std::next(field);
  }
  return fields;
}

std::string Show(absl::string_view text) { return device::Printable(text, 300); }

}  // namespace

absl::Status CheckSame(const Fields& in_checkpoint, const Fields& here,
                       absl::Span<const std::string> may_differ) {
  const Fields there = Without(in_checkpoint, may_differ), mine = Without(here, may_differ);
  Fields all = there;
  all.insert(mine.begin(), mine.end());
  for (const auto& [name, value] : all) {
    const auto saved = there.find(name), own = mine.find(name);
    if (saved != there.end() && own != mine.end() && saved->second == own->second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        Show(name),
        saved == there.end() ? " is not in the checkpoint"
                             : absl::StrCat(" is ", Show(saved->second), " in the checkpoint"),
        own == mine.end() ? ", and not known here"
                          : absl::StrCat(", ", Show(own->second), " here")));
  }
  return absl::OkStatus();
}

Fields OptionFields(const zero::ZeroOptions& options) {
  // As above: a new option is written here, or left out as one of stage, memory and traffic. The
  // number of micro-batches is left out too: fewer ranks have more of them, of the same batch, and
  // both change the order of sums (loader.h). So does node_ranks.
  [[maybe_unused]] const auto& [stage, dtype, optimizer, loss_scaler, max_grad_norm, model_ranks,
                                shard_ranks, hpz_ranks, average_gradients, micro_batches,
                                accumulation, accumulator, communication_dtype, quantized_weights,
                                quantized_frozen_weights, quantized_gradients, node_ranks, loco,
                                gradient_compression, bucket_elements, overlap_comm, live_units,
                                backward_units, chunks, runs, tied_apart, persistence_threshold,
                                offload, reduction, algorithm] = options;
  [[maybe_unused]] const auto& [kind, groups, freeze_step, one_bit_lamb, zero_one, coded, muon,
                                adafactor] = options.optimizer;
  Fields fields = {{"dtype", std::string(precision::Name(options.dtype))},
                   {"optimizer", TextOf(options.optimizer.kind)},
                   {"max_grad_norm", TextOf(options.max_grad_norm)},
                   {"average_gradients", TextOf(options.average_gradients)},
                   {"accumulation", TextOf(options.accumulation)},
                   {"accumulator", std::string(precision::Name(options.accumulator))},
                   {"communication_dtype", communication_dtype.has_value()
                                               ? std::string(precision::Name(*communication_dtype))
                                               : kNone},
                   {"reduction", std::string(collectives::Name(options.reduction))}};
  if (options.offload.delay_update) {
    fields["delay_warm_up"] = TextOf(options.offload.delay_warm_up);
  }
  const auto write_codes = [&fields](const char* name, const auto& codes) {
    if (codes.has_value()) fields[name] = kernels::Name(*codes);
  };
  write_codes("quantized_weights", quantized_weights);
  write_codes("quantized_frozen_weights", quantized_frozen_weights);
  write_codes("quantized_gradients", quantized_gradients);
  if (loco.has_value()) {
    [[maybe_unused]] const auto& [err_beta, reset_steps] = *loco;
    fields["loco.err_beta"] = TextOf(loco->err_beta);
    fields["loco.reset_steps"] = TextOf(loco->reset_steps);
  }
  if (kind == optim::OptimizerKind::kZeroOneAdam) {
    const auto& [var_freeze_step, var_update_scaler, local_step_scaler, local_step_clipper] =
        zero_one;
    fields["var_freeze_step"] = TextOf(var_freeze_step);
    fields["var_update_scaler"] = TextOf(var_update_scaler);
    fields["local_step_scaler"] = TextOf(local_step_scaler);
    fields["local_step_clipper"] = TextOf(local_step_clipper);
  } else if (optim::AveragesMoments(kind)) {
    fields["freeze_step"] = TextOf(freeze_step);
  }
  if (kind == optim::OptimizerKind::kOneBitLamb) {
    const auto& [coeff_beta, factor_max, factor_min, factor_threshold] = one_bit_lamb;
    fields["coeff_beta"] = TextOf(coeff_beta);
    fields["factor_max"] = TextOf(factor_max);
    fields["factor_min"] = TextOf(factor_min);
    fields["factor_threshold"] = TextOf(factor_threshold);
  }
  if (optim::HasCodes(kind)) {
    [[maybe_unused]] const auto& [min_elements, tables, matrices, factored] = coded;
    fields["coded.min_elements"] = TextOf(min_elements);
    fields["coded.tables"] = TextOf(tables);
  }
  if (kind == optim::OptimizerKind::kMuon) {
    const auto& [steps, coefficients, eps, scale, rate] = muon;
    fields["muon.steps"] = TextOf(int64_t{steps});
    fields["muon.coefficients"] =
        absl::StrCat(TextOf(double{coefficients.a}), " ", TextOf(double{coefficients.b}), " ",
                     TextOf(double{coefficients.c}));
    fields["muon.eps"] = TextOf(eps);
    fields["muon.scale"] = scale == kernels::MuonScale::kOriginal ? "original" : "match_rms_adamw";
    fields["muon.rate"] = TextOf(rate);
  }
  if (kind == optim::OptimizerKind::kAdafactor) {
    Write(fields, "adafactor.", [&own = adafactor](auto visit) { VisitAdafactor(own, visit); });
  }
  if (gradient_compression.has_value()) {
    const auto& [method, start_step, rank, iterations, density] = *gradient_compression;
    fields["gradient_compression"] = zero::Name(method);
    fields["gradient_compression.start_step"] = TextOf(start_step);
    if (method == zero::GradientCompression::kPowerSgd) {
      fields["gradient_compression.rank"] = TextOf(rank);
      // Not of 1, which most checkpoints without it are of: older ones do not say.
      if (iterations != 1) fields["gradient_compression.iterations"] = TextOf(iterations);
    }
    if (method == zero::GradientCompression::kTopK) {
      fields["gradient_compression.density"] = TextOf(density);
    }
  }
  if (options.tied_apart) fields["tied_apart"] = TextOf(options.tied_apart);
  // Sums that are rounded once are the same whatever way they go.
  if (options.reduction != collectives::Reduction::kRoundedOnce) {
    absl::StrAppend(&fields["reduction"], " by ", collectives::Name(options.algorithm));
  }
  for (size_t g = 0; g < options.optimizer.groups.size(); ++g) {
    const optim::ParameterGroup& group = options.optimizer.groups[g];
    WriteRate(g, group.lr, group.schedule, fields);
    Write(fields, GroupName(g) + ".", [&](auto visit) { VisitGroup(group, visit); });
    // Not of the others, whose checkpoints have been without them.
    if (!optim::IsLamb(options.optimizer.kind)) continue;
    Write(fields, GroupName(g) + ".", [&](auto visit) { VisitTrust(group, visit); });
  }
  Write(fields, "loss_scaler.", [&](auto visit) { VisitScaler(options.loss_scaler, visit); });
  return fields;
}

std::string ParameterText(const zero::ParameterSpec& spec) {
  return absl::StrCat("[", absl::StrJoin(spec.shape, ", "), "] ", precision::Name(*spec.dtype),
                      spec.trainable ? absl::StrCat(", group ", spec.group) : ", frozen");
}

Fields ParameterFields(absl::Span<const zero::Parameter> parameters) {
  Fields fields;
  for (const zero::Parameter& parameter : parameters) {
    fields[parameter.spec.name] = ParameterText(parameter.spec);
  }
  return fields;
}

Fields StateFields(const kernels::StepState& state) {
  Fields fields;
  Write(fields, "", [&](auto visit) { VisitState(state, visit); });
  return fields;
}

absl::StatusOr<kernels::StepState> StateOf(const Fields& fields) {
  kernels::StepState state = {};
  Reader reader(fields);
  VisitState(state, [&](const char* name, auto& value) { reader.Take(name, value); });
  BRIGADE_RETURN_IF_ERROR(reader.Finish());
  return state;
}

Fields RateFields(absl::Span<const Rate> groups) {
  Fields fields;
  for (size_t g = 0; g < groups.size(); ++g) {
    WriteRate(g, groups[g].lr, groups[g].schedule, fields);
  }
  return fields;
}

absl::StatusOr<std::vector<Rate>> RatesOf(const Fields& fields) {
  std::vector<Rate> rates;
  Reader reader(fields);
  for (std::string name = GroupName(0); HasFieldOf(fields, name); name = GroupName(rates.size())) {
    Rate& rate = rates.emplace_back();
    reader.Take(name + ".lr", rate.lr);
    const std::string* const kind = reader.Take(name + ".schedule");
    if (kind != nullptr && !SetKind(*kind, rate.schedule)) {
      reader.NoSuchValue(name + ".schedule", *kind);
    }
    std::visit(
        [&](auto& schedule) {
          ScheduleVisitor::Each(schedule, [&](const char* field, auto& value) {
            reader.Take(absl::StrCat(name, ".schedule.", field), value);
          });
        },
        rate.schedule);
  }
  BRIGADE_RETURN_IF_ERROR(reader.Finish());
  for (size_t g = 0; g < rates.size(); ++g) {
    BRIGADE_RETURN_IF_ERROR(
        optim::ValidateRate(static_cast<int64_t>(g), rates[g].lr, rates[g].schedule));
  }
  return rates;
}

}  // namespace brigade::checkpoint
