#include "brigade/profile/step_profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "brigade/profile/flops.h"

namespace brigade::profile {
namespace {

constexpr char kBetween[] = "between passes";
constexpr char kPart[4][12] = {"products", "attention", "norms", "other"};

size_t Index(Pass pass) { return static_cast<size_t>(pass); }

bool IsWork(Kind kind) {
  return kind == Kind::kProduct || kind == Kind::kAttention || kind == Kind::kOther ||
         kind == Kind::kOptimizer;
}

// Of a unit's depth 2.
size_t PartOf(const Row& row) {
  if (row.kind == Kind::kProduct) return 0;
  if (row.kind == Kind::kAttention) return 1;
  return row.name.find("norm") != std::string::npos ? 2 : 3;
}

double Of(const Flops& flops, size_t part) {
  return part == 0   ? flops.products
         : part == 1 ? flops.attention + flops.scores
         : part == 2 ? flops.norms
                     : flops.pointwise;
}

// [row]: its share of its unit's products or attention.
std::vector<double> FlopsOfRows(const RankStep& step) {
  using Group = std::tuple<int, Pass, Kind>;
  std::map<Group, double> seconds;
  std::map<Group, int64_t> calls;
  const auto has_flops = [&](const Row& row) {
    return (row.kind == Kind::kProduct || row.kind == Kind::kAttention) && row.place.unit >= 0 &&
           static_cast<size_t>(row.place.unit) < step.units.size() && row.place.pass != Pass::kNone;
  };
  for (const Row& row : step.rows) {
    if (!has_flops(row)) continue;
    seconds[{row.place.unit, row.place.pass, row.kind}] += row.seconds;
    calls[{row.place.unit, row.place.pass, row.kind}] += row.calls;
  }
  std::vector<double> flops;
  for (const Row& row : step.rows) {
    if (!has_flops(row)) {
      flops.push_back(0);
      continue;
    }
    const Group group = {row.place.unit, row.place.pass, row.kind};
    // A clock that has not moved says nothing of shares.
    const double share = seconds[group] > 0
                             ? row.seconds / seconds[group]
                             : static_cast<double>(row.calls) / static_cast<double>(calls[group]);
    const Flops& of = step.units[static_cast<size_t>(row.place.unit)].flops[Index(row.place.pass)];
    flops.push_back(share * Of(of, PartOf(row)));
  }
  return flops;
}

void Add(const Row& row, double flops, const Ceilings& ceilings, Module& module) {
  if (!IsWork(row.kind)) {
    for (size_t i = 0; i < row.limits.size(); ++i) module.limits[i] += row.limits[i];
    return;
  }
  module.limits[static_cast<size_t>(LimitOf(flops, row.bytes, ceilings))] += row.seconds;
  module.least_seconds += LeastSeconds(flops, row.bytes, ceilings);
  if (row.place.pass == Pass::kNone) return;
  module.seconds[Index(row.place.pass)] += row.seconds;
  module.bytes[Index(row.place.pass)] += row.bytes;
}

class Merger {
 public:
  void AddRank(const RankStep& step) {
    const std::vector<double> flops = FlopsOfRows(step);
    for (const UnitSize& unit : step.units) AddSize(unit);
    for (size_t r = 0; r < step.rows.size(); ++r) {
      const Row& row = step.rows[r];
      if (row.stream == step.main) {
        const bool in_unit =
            row.place.unit >= 0 && static_cast<size_t>(row.place.unit) < step.units.size();
        Module& unit =
            in_unit ? Find(step.units[static_cast<size_t>(row.place.unit)].name) : between_;
        Add(row, flops[r], step.ceilings, unit);
        if (in_unit && IsWork(row.kind)) {
          Add(row, flops[r], step.ceilings, unit.parts[PartOf(row)]);
        }
      }
      AddKernel(row, flops[r]);
      if (row.kind == Kind::kCollective) profile_.collective_seconds += row.seconds;
      if (row.stream == step.main && !IsWork(row.kind)) {
        profile_.exposed_seconds += row.limits[static_cast<size_t>(Limit::kNetwork)];
      }
    }
    for (const CollectiveCalls& calls : step.calls) AddCalls(calls, profile_.calls);
    for (const Sent& sent : step.sent) {
      const auto at = std::find_if(profile_.sent.begin(), profile_.sent.end(),
                                   [&](const Sent& each) { return each.to == sent.to; });
      if (at == profile_.sent.end()) {
        profile_.sent.push_back(sent);
      } else {
        at->bytes += sent.bytes;
      }
    }
    profile_.dropped += step.dropped;
  }

  StepProfile Take() {
    between_.name = kBetween;
    profile_.units.push_back(std::move(between_));
    std::stable_sort(
        profile_.kernels.begin(), profile_.kernels.end(),
        [](const Kernel& a, const Kernel& b) { return a.row.seconds > b.row.seconds; });
    return std::move(profile_);
  }

  StepProfile& profile() { return profile_; }

 private:
  Module& Find(const std::string& name) {
    for (Module& unit : profile_.units) {
      if (unit.name == name) return unit;
    }
    Module unit = {.name = name};
    for (const char* const part : kPart)
      unit.parts.push_back({.name = absl::StrCat(name, ".", part)});
    profile_.units.push_back(std::move(unit));
    return profile_.units.back();
  }

  void AddSize(const UnitSize& size) {
    Module& unit = Find(size.name);
    // Each rank that has a part of it tells all of it.
    unit.parameters = std::max(unit.parameters, size.parameters);
    for (size_t pass = 0; pass < kPasses; ++pass) {
      const Flops& flops = size.flops[pass];
      unit.flops[pass] += flops;
      unit.parts[0].flops[pass].products += flops.products;
      unit.parts[1].flops[pass].attention += flops.attention;
      unit.parts[1].flops[pass].scores += flops.scores;
      unit.parts[2].flops[pass].norms += flops.norms;
      unit.parts[3].flops[pass].pointwise += flops.pointwise;
    }
  }

  void AddKernel(const Row& row, double flops) {
    if (row.kind == Kind::kIdle) return;
    using Key = std::tuple<std::string, Pass, Kind, std::string>;
    const auto [at, is_new] = kernels_.try_emplace(
        Key{row.stream, row.place.pass, row.kind, row.name}, profile_.kernels.size());
    if (is_new) {
      Row first = row;
      first.place.unit = -1;
      profile_.kernels.push_back({std::move(first), flops});
      return;
    }
    Kernel& kernel = profile_.kernels[at->second];
    kernel.row.calls += row.calls;
    kernel.row.seconds += row.seconds;
    kernel.row.bytes += row.bytes;
    kernel.flops += flops;
    for (size_t i = 0; i < row.limits.size(); ++i) kernel.row.limits[i] += row.limits[i];
  }

  StepProfile profile_;
  Module between_;
  std::map<std::tuple<std::string, Pass, Kind, std::string>, size_t> kernels_;
};

}  // namespace

Flops& Flops::operator+=(const Flops& other) {
  products += other.products;
  attention += other.attention;
  scores += other.scores;
  norms += other.norms;
  pointwise += other.pointwise;
  return *this;
}

double StepProfile::model_flops(bool causal) const {
  return training.tokens_of_step *
         (causal ? training.causal_flops_per_token : training.flops_per_token);
}

double StepProfile::hardware_flops(bool causal) const {
  // A forward pass is a third of both.
  if (again_factor > 0) return model_flops(causal) * (1 + again_factor / 3);
  return model_flops(causal) + again_other_flops +
         again_attention_flops * (causal ? 1 : training.pairs_over_causal);
}

double StepProfile::mfu(bool causal) const {
  return seconds > 0
             ? Utilization(model_flops(causal) / seconds, training.ranks, ceilings.flops_per_second)
             : 0;
}

double StepProfile::hfu(bool causal) const {
  return seconds > 0 ? Utilization(hardware_flops(causal) / seconds, training.ranks,
                                   ceilings.flops_per_second)
                     : 0;
}

double StepProfile::pass_seconds(Pass pass) const {
  double sum = 0;
  for (const Module& unit : units) sum += unit.seconds[Index(pass)];
  return sum;
}

StepProfile Merge(const Training& training, absl::Span<const RankStep> ranks, double factor) {
  Merger merger;
  StepProfile& all = merger.profile();
  all.training = training;
  for (const RankStep& rank : ranks) {
    merger.AddRank(rank);
    const double share = 1.0 / static_cast<double>(ranks.size());
    // The step of a group is that of its slowest rank.
    all.seconds = std::max(all.seconds, rank.seconds);
    all.ceilings.flops_per_second += share * rank.ceilings.flops_per_second;
    all.ceilings.memory_bytes_per_second += share * rank.ceilings.memory_bytes_per_second;
    all.ceilings.network_bytes_per_second += share * rank.ceilings.network_bytes_per_second;
    for (const auto& [name, rate] : rank.ceilings.collective_bytes_per_second) {
      all.ceilings.collective_bytes_per_second[name] += share * rate;
    }
    all.ceilings.source = rank.ceilings.source;
    for (const UnitSize& unit : rank.units) {
      const Flops& again = unit.flops[Index(Pass::kRecompute)];
      all.again_other_flops += again.products;
      all.again_attention_flops += again.attention;
      for (const Flops& flops : unit.flops) all.again_attention_flops += flops.scores;
    }
  }
  all.again_factor = factor;
  return merger.Take();
}

std::vector<std::pair<std::string, double>> ValuesOf(const StepProfile& profile) {
  const auto ranks = static_cast<double>(std::max(profile.training.ranks, 1));
  LimitSeconds limits = {};
  double wall = 0;
  for (const Module& unit : profile.units) {
    for (size_t i = 0; i < limits.size(); ++i) limits[i] += unit.limits[i];
    wall += unit.wall_seconds();
  }
  std::vector<std::pair<std::string, double>> values = {
      {"Train/Profile/step_seconds", profile.seconds},
      {"Train/Profile/forward_seconds", profile.pass_seconds(Pass::kForward) / ranks},
      {"Train/Profile/backward_seconds", profile.pass_seconds(Pass::kBackward) / ranks},
      {"Train/Profile/recompute_seconds", profile.pass_seconds(Pass::kRecompute) / ranks},
      {"Train/Profile/flops_per_token", profile.training.flops_per_token},
      {"Train/Profile/mfu", profile.mfu(false)},
      {"Train/Profile/hfu", profile.hfu(false)},
  };
  for (int limit = 0; limit < kLimits; ++limit) {
    values.emplace_back(
        absl::StrCat("Train/Profile/limited_by_", std::string(Name(static_cast<Limit>(limit)))),
        wall > 0 ? limits[static_cast<size_t>(limit)] / wall : 0);
  }
  return values;
}

std::vector<std::pair<std::string, double>> ValuesOfRate(const StepProfile& profile,
                                                         double tokens_per_second) {
  const double rate = profile.training.flops_per_token * tokens_per_second;
  const double model = profile.model_flops(false);
  const double mfu = Utilization(rate, profile.training.ranks, profile.ceilings.flops_per_second);
  return {{"Train/Samples/mfu", mfu},
          {"Train/Samples/hfu", model > 0 ? mfu * profile.hardware_flops(false) / model : 0},
          {"Train/Samples/tflops", 1e-12 * rate}};
}

}  // namespace brigade::profile
