#include "brigade/zero/internal/consistency_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"
#include "brigade/optim/schedule.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {
namespace {

std::string Number(double value) { return absl::StrFormat("%.17g", value); }

// What is the same on all ranks, one thing a line.
using Lines = std::vector<std::string>;

void AppendGroup(const optim::ParameterGroup& group, size_t index, Lines& lines) {
  // As many names as members: with a new one this does not compile. Name it here, and compare it
  // below.
  const auto& [lr, schedule, weight_decay, beta1, beta2, eps, min_trust, max_trust, momentum,
               dampening, nesterov] = group;
  const std::vector<float> rates = optim::LearningRates(schedule, lr);
  const absl::string_view bytes(reinterpret_cast<const char*>(rates.data()),
                                rates.size() * sizeof(float));
  lines.push_back(absl::StrCat(
      "group ", index, ": lr ", Number(lr), ", weight_decay ", Number(weight_decay), ", betas ",
      Number(beta1), " ", Number(beta2), ", eps ", Number(eps), ", trust from ", Number(min_trust),
      " to ", Number(max_trust), ", momentum ", Number(momentum), ", dampening ", Number(dampening),
      ", nesterov ", nesterov, ", schedule of ", rates.size(), " rates (",
      absl::Hex(collectives::Fnv1a(bytes)), ")"));
}

const char* CodesText(const std::optional<kernels::QuantFormat>& codes) {
  return codes.has_value() ? kernels::Name(*codes) : "none";
}

std::string CompressionText(const std::optional<CompressionOptions>& compression) {
  if (!compression.has_value()) return "gradient_compression none";
  const std::string from = absl::StrCat("gradient_compression ", Name(compression->method),
                                        " from step ", compression->start_step);
  switch (compression->method) {
    case GradientCompression::kOneBit:
      return from;
    case GradientCompression::kPowerSgd:
      return absl::StrCat(from, ", rank ", compression->rank, ", iterations ",
                          compression->iterations);
    case GradientCompression::kTopK:
      return absl::StrCat(from, ", density ", Number(compression->density));
  }
  return from;
}

std::string LocoText(const std::optional<LocoOptions>& loco) {
  if (!loco.has_value()) return "";
  return absl::StrCat(", LoCo with err_beta ", Number(loco->err_beta), ", reset_steps ",
                      loco->reset_steps);
}

Lines OptionLines(const ZeroOptions& options) {
  const optim::LossScaler& scaler = options.loss_scaler;
  Lines lines = {
      absl::StrCat("stage ", options.stage),
      absl::StrCat("dtype ", precision::ShortName(options.dtype)),
      absl::StrCat("optimizer ", static_cast<int>(options.optimizer.kind), " with ",
                   options.optimizer.groups.size(), " groups, freeze_step ",
                   options.optimizer.freeze_step, ", coeff_beta ",
                   Number(options.optimizer.one_bit_lamb.coeff_beta), ", factors ",
                   Number(options.optimizer.one_bit_lamb.factor_min), " to ",
                   Number(options.optimizer.one_bit_lamb.factor_max), ", threshold ",
                   Number(options.optimizer.one_bit_lamb.factor_threshold),
                   ", second moments until ", options.optimizer.zero_one.var_freeze_step, " by ",
                   options.optimizer.zero_one.var_update_scaler, ", meetings by ",
                   options.optimizer.zero_one.local_step_scaler, " to ",
                   options.optimizer.zero_one.local_step_clipper, ", codes of ",
                   options.optimizer.coded.min_elements, " elements and more, of tables ",
                   options.optimizer.coded.tables, ", Muon of ", options.optimizer.muon.steps,
                   " steps by ", Number(options.optimizer.muon.coefficients.a), " ",
                   Number(options.optimizer.muon.coefficients.b), " ",
                   Number(options.optimizer.muon.coefficients.c), ", eps ",
                   Number(options.optimizer.muon.eps), ", scale ",
                   static_cast<int>(options.optimizer.muon.scale), ", rate ",
                   Number(options.optimizer.muon.rate)),
      absl::StrCat("Adafactor of eps ", Number(options.optimizer.adafactor.eps1), " ",
                   Number(options.optimizer.adafactor.eps2), ", clip_threshold ",
                   Number(options.optimizer.adafactor.clip_threshold), ", decay_rate ",
                   Number(options.optimizer.adafactor.decay_rate), ", scale_parameter ",
                   options.optimizer.adafactor.scale_parameter, ", relative_step ",
                   options.optimizer.adafactor.relative_step, ", warmup_init ",
                   options.optimizer.adafactor.warmup_init),
      absl::StrCat("loss_scale ", Number(scaler.loss_scale), ", initial_scale_power ",
                   scaler.initial_scale_power, ", window ", scaler.loss_scale_window,
                   ", hysteresis ", scaler.hysteresis, " ", scaler.consecutive_hysteresis,
                   ", from ", Number(scaler.min_loss_scale), " to ", Number(scaler.max_loss_scale),
                   ", at minimum ", static_cast<int>(scaler.at_minimum), ", check_overflow ",
                   scaler.check_overflow),
      absl::StrCat("max_grad_norm ", Number(options.max_grad_norm)),
      absl::StrCat("model_ranks ", options.model_ranks),
      absl::StrCat("shard_ranks ", options.shard_ranks),
      absl::StrCat("hpz_ranks ", options.hpz_ranks),
      absl::StrCat("average_gradients ", options.average_gradients),
      absl::StrCat("micro_batches ", options.micro_batches),
      absl::StrCat("tied_apart ", options.tied_apart),
      absl::StrCat("accumulation ", static_cast<int>(options.accumulation), " in ",
                   precision::ShortName(options.accumulator)),
      absl::StrCat("communication_dtype ", options.communication_dtype.has_value()
                                               ? precision::ShortName(*options.communication_dtype)
                                               : "none"),
      absl::StrCat("codes: weights ", CodesText(options.quantized_weights), ", frozen weights ",
                   CodesText(options.quantized_frozen_weights), ", gradients ",
                   CodesText(options.quantized_gradients), " on nodes of ", options.node_ranks,
                   LocoText(options.loco)),
      CompressionText(options.gradient_compression),
      absl::StrCat("offload: optimizer state on the ",
                   device::ToString(options.offload.optimizer_state), ", host_share ",
                   Number(options.offload.host_share), ", parameters on the ",
                   device::ToString(options.offload.parameters), ", delay_update ",
                   options.offload.delay_update, " after ", options.offload.delay_warm_up),
      absl::StrCat("algorithm ", static_cast<int>(options.algorithm)),
      absl::StrCat("reduction ", static_cast<int>(options.reduction))};
  for (size_t g = 0; g < options.optimizer.groups.size(); ++g) {
    AppendGroup(options.optimizer.groups[g], g, lines);
  }
  return lines;
}

// Of one group: those of another part of a model differ.
Lines PlanLines(const Plan& plan, const ZeroOptions& options) {
  Lines lines = {absl::StrCat("bucket_elements ", options.bucket_elements),
                 absl::StrCat("live_units ", options.live_units),
                 absl::StrCat("backward_units ", absl::StrJoin(options.backward_units, " ")),
                 absl::StrCat("chunks ", absl::StrJoin(options.chunks, " ")),
                 absl::StrCat("runs ", absl::StrJoin(options.runs, " ")),
                 absl::StrCat("persistence_threshold ", options.persistence_threshold)};
  for (size_t p = 0; p < plan.parameters().size(); ++p) {
    lines.push_back(absl::StrCat("parameter ", p, ", ", plan.Describe(static_cast<int>(p))));
  }
  for (const Unit& unit : plan.units()) {
    lines.push_back(absl::StrCat("unit \"", unit.name, "\" with parameters ",
                                 absl::StrJoin(unit.parameters, " ")));
  }
  return lines;
}

// Those whose gradients another group has too, in the order of their names.
std::vector<const Parameter*> TiedOutside(const Plan& plan) {
  std::vector<const Parameter*> tied;
  for (const Parameter& each : plan.parameters()) {
    if (each.spec.tied_outside && each.spec.trainable) tied.push_back(&each);
  }
  std::sort(tied.begin(), tied.end(),
            [](const Parameter* a, const Parameter* b) { return a->spec.name < b->spec.name; });
  return tied;
}

}  // namespace

absl::Status AgreeOnPlan(const Plan& plan, const ZeroOptions& options,
                         collectives::Communicator& communicator) {
  Lines lines = OptionLines(options);
  for (std::string& line : PlanLines(plan, options)) lines.push_back(std::move(line));
  return collectives::AgreeOnLines(lines, communicator);
}

absl::Status AgreeOnOptions(const Plan& plan, const ZeroOptions& options,
                            collectives::Communicator& world) {
  Lines lines = OptionLines(options);
  // As many statistics.
  const size_t types = GradientLists(plan, options, [](int) { return nullptr; }).size();
  lines.push_back(absl::StrCat("gradients of ", std::max<size_t>(1, types), " types"));
  return collectives::AgreeOnLines(lines, world);
}

absl::Status AgreeOnStep(const kernels::StepState& step, collectives::Communicator& communicator) {
  const std::string mine(reinterpret_cast<const char*>(&step), sizeof(step));
  BRIGADE_ASSIGN_OR_RETURN(const auto all, collectives::AllGatherBytes(mine, communicator));
  size_t other = 0;
  while (other < all.size() && all[other] == all[0]) ++other;
  if (other == all.size()) return absl::OkStatus();
  const auto describe = [&](size_t rank) {
    kernels::StepState state;
    std::memcpy(&state, all[rank].data(), sizeof(state));
    return absl::StrCat("step ", state.step, " (iteration ", state.iteration, ", loss scale ",
                        state.loss_scale, ")");
  };
  return absl::InvalidArgumentError(absl::StrCat("ranks' states disagree: rank 0 is at ",
                                                 describe(0), ", rank ", other, " at ",
                                                 describe(other)));
}

absl::Status AgreeOnPlanBetween(const Plan& plan, const ZeroOptions& options, int rank,
                                collectives::Communicator& between) {
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnLines(
      {absl::StrCat("place ", rank, " of ", plan.ranks(), " in its group")}, between));
  return AgreeOnPlan(plan, options, between);
}

absl::Status CheckGroups(const Plan& plan, const ZeroOptions& options) {
  const auto groups = static_cast<int32_t>(options.optimizer.groups.size());
  for (const Parameter& p : plan.parameters()) {
    if (!p.spec.trainable || p.spec.group < groups) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameter \"", p.spec.name, "\": group is ",
                                                   p.spec.group, ", the optimizer has ", groups));
  }
  return absl::OkStatus();
}

absl::Status CheckChunks(const Plan& plan, const ZeroOptions& options) {
  const int units = static_cast<int>(plan.units().size());
  if (!options.chunks.empty() && options.chunks.back() >= std::max(units, 1)) {
    return absl::InvalidArgumentError(absl::StrCat("chunk ", options.chunks.size() - 1,
                                                   " begins with unit ", options.chunks.back(),
                                                   ", but the model has ", units));
  }
  for (const Bucket& gradient : plan.gradients()) {
    const int first = gradient.users.front(), last = gradient.users.back();
    if (!gradient.trainable || ChunkOf(options, first) == ChunkOf(options, last)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter \"", plan.parameter(gradient.entries.front().parameter).spec.name,
                     "\" is tied between units \"", plan.unit(first).name, "\" of chunk ",
                     ChunkOf(options, first), " and \"", plan.unit(last).name, "\" of chunk ",
                     ChunkOf(options, last), ", which needs tied_apart"));
  }
  return absl::OkStatus();
}

absl::Status CheckTied(const Plan& plan, const OuterGroups& outer) {
  const std::vector<const Parameter*> parameters = TiedOutside(plan);
  const collectives::Communicator* const tied = outer.tied;
  if (parameters.empty() && tied == nullptr) return absl::OkStatus();
  if (parameters.empty()) {
    return absl::InvalidArgumentError(
        "ZeRO: OuterGroups::tied is given, but no trainable parameter is tied_outside");
  }
  std::string why;
  if (outer.world == nullptr) {
    why = "world is not given";
  } else if (tied == nullptr) {
    why = "tied is not given";
  } else if (tied->size() != 2) {
    why = absl::StrCat("tied has ", tied->size(), " ranks, not 2");
  } else {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("ZeRO: parameter \"", parameters[0]->spec.name,
                                                 "\" is tied_outside, but OuterGroups::", why));
}

namespace {

// What Validate leaves open, for it does not know how many groups there are.
absl::Status CheckExchangingGroups(const Plan& plan, const ZeroOptions& options) {
  const auto invalid = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ZeRO: gradients or moments are exchanged, shard_ranks is ", options.shard_ranks, what...));
  };
  if (plan.shard_groups() > 1) {
    if (options.has_local_steps()) {
      return invalid(", and local_step_clipper ", options.optimizer.zero_one.local_step_clipper,
                     "; the ranks of a group sum gradients in each step. Groups that run apart "
                     "are replicas; with local_step_clipper 1 groups meet in each step");
    }
    if (options.node_ranks > 1 && !options.quantized_gradients.has_value()) {
      return invalid(", and node_ranks ", options.node_ranks,
                     "; what groups exchange goes in one hop");
    }
    return absl::OkStatus();
  }
  if (options.shard_ranks == 0) return absl::OkStatus();
  if (!options.traits().whole_parameters) {
    return invalid(", which is all ranks, and stage ", options.stage,
                   " has no memory for whole gradients; stages 0 to 2 have, and so have several "
                   "groups");
  }
  if (options.quantized_gradients.has_value()) {
    return invalid(", which is all ranks, and quantized_gradients ",
                   kernels::Name(*options.quantized_gradients),
                   "; gradients of one group cross the wire in one of the two ways");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckExchanges(const Plan& plan, const ZeroOptions& options) {
  for (const Parameter& parameter : plan.parameters()) {
    const ParameterSpec& spec = parameter.spec;
    if (options.optimizer.kind != optim::OptimizerKind::kOneBitLamb || !spec.trainable) continue;
    if (spec.size == 0 || spec.size >= kTensorNumbers) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("ZeRO: the optimizer is OneBitLamb, which keeps ", kTensorNumbers,
                     " numbers of each parameter in places of its elements, but \"", spec.name,
                     "\" has ", spec.size));
  }
  if (!options.exchanges()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckExchangingGroups(plan, options));
  const std::vector<const Parameter*> tied = TiedOutside(plan);
  if (tied.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ZeRO: ranks exchange their own gradients, but parameter \"", tied[0]->spec.name,
                   "\" is tied_outside"));
}

absl::Status AgreeOnPartners(const Plan& plan, collectives::Communicator& world) {
  // Whether it counts, and its name.
  std::string mine;
  for (const Parameter* const each : TiedOutside(plan)) {
    absl::StrAppend(&mine, each->spec.counted ? 1 : 0, each->spec.name, std::string(1, '\0'));
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto all, collectives::AllGatherBytes(mine, world));
  // By name: how many ranks have it, and how many count it.
  std::map<std::string, std::pair<int, int>> copies;
  for (const std::string& of_rank : all) {
    for (const absl::string_view each : absl::StrSplit(of_rank, '\0', absl::SkipEmpty())) {
      auto& [ranks, counting] = copies[std::string(each.substr(1))];
      ++ranks;
      if (each[0] == '1') ++counting;
    }
  }
  for (const auto& [name, found] : copies) {
    const auto& [ranks, counting] = found;
    if (ranks == 2 * counting) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("ZeRO: parameter \"", name, "\" is tied_outside on ", ranks,
                     " ranks of the world, of which ", counting,
                     " count it; they come in pairs, of which one counts it"));
  }
  return absl::OkStatus();
}

absl::Status AgreeOnTied(const Plan& plan, int rank, collectives::Communicator& tied) {
  const std::vector<const Parameter*> parameters = TiedOutside(plan);
  Lines lines = {absl::StrCat("place ", rank, " of ", plan.ranks(), " in its group")};
  std::string counted;
  for (const Parameter* const each : parameters) {
    const ParameterSpec& spec = each->spec;
    lines.push_back(absl::StrCat("tied_outside parameter \"", spec.name, "\" of ", spec.size, " ",
                                 precision::ShortName(*spec.dtype), ", group ", spec.group));
    counted.push_back(spec.counted ? '1' : '0');
  }
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnLines(lines, tied));
  BRIGADE_ASSIGN_OR_RETURN(const auto both, collectives::AllGatherBytes(counted, tied));
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (both[0][i] != both[1][i]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tied_outside parameter \"", parameters[i]->spec.name, "\" is counted in ",
                     counted[i] == '1' ? "both groups" : "neither group"));
  }
  return absl::OkStatus();
}

absl::Status CheckBackwardUnits(const Plan& plan, const ZeroOptions& options) {
  if (options.backward_units.empty()) return absl::OkStatus();
  const int units = static_cast<int>(plan.units().size());
  const auto wrong = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("backward_units: ", what...));
  };
  // From the end: units that are new come in ascending order.
  int next = 0;
  for (size_t i = options.backward_units.size(); i-- > 0;) {
    const int unit = options.backward_units[i];
    if (unit < 0 || unit >= units) return wrong("use ", i, " is of unit ", unit, " of ", units);
    if (unit > next) {
      return wrong("the last use of unit \"", plan.unit(unit).name, "\" comes behind that of \"",
                   plan.unit(next).name, "\", or there is none of that");
    }
    if (unit == next) ++next;
  }
  if (next == units) return absl::OkStatus();
  return wrong("there is no use of unit \"", plan.unit(next).name, "\"");
}

}  // namespace brigade::zero::internal
