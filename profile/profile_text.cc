#include "brigade/profile/profile_text.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/profile/collective_calls.h"
#include "brigade/profile/roofline.h"

namespace brigade::profile {
namespace {

constexpr double kGiga = 1e9;
constexpr double kMilli = 1e-3;

double Over(double amount, double by) { return by > 0 ? amount / by : 0; }

std::string Share(double amount, double of) {
  return of > 0 ? absl::StrFormat("%.1f%%", 100 * amount / of) : "-";
}

// MFU and HFU, whose peak may not be known.
std::string Utilizations(const StepProfile& profile, bool causal) {
  if (!(profile.ceilings.flops_per_second > 0)) return "-, -";
  return absl::StrCat(Share(profile.mfu(causal), 1), ", ", Share(profile.hfu(causal), 1));
}

absl::string_view NameOf(Pass pass) {
  constexpr absl::string_view kNames[] = {"forward", "backward", "again", "-"};
  return kNames[static_cast<size_t>(pass)];
}

// 336.23 M, as DeepSpeed's tables have it.
std::string Amount(double number, const char* unit) {
  constexpr std::pair<double, const char*> kScales[] = {
      {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}};
  for (const auto& [scale, name] : kScales) {
    if (number >= scale) return absl::StrFormat("%.2f %s%s", number / scale, name, unit);
  }
  return absl::StrFormat("%.0f%s%s", number, *unit == '\0' ? "" : " ", unit);
}

LimitSeconds SumOf(const StepProfile& profile) {
  LimitSeconds sum = {};
  for (const Module& unit : profile.units) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += unit.limits[i];
  }
  return sum;
}

double Total(const LimitSeconds& limits) { return limits[0] + limits[1] + limits[2] + limits[3]; }

std::string LimitsOf(const LimitSeconds& limits) {
  std::string text;
  for (const double each : limits) {
    absl::StrAppend(&text, absl::StrFormat(" %8s", Share(each, Total(limits))));
  }
  return text;
}

std::string LimitName(const LimitSeconds& limits) {
  return Total(limits) > 0 ? std::string(Name(Largest(limits))) : "-";
}

std::string StepText(const StepProfile& profile) {
  const Training& training = profile.training;
  const Ceilings& ceilings = profile.ceilings;
  const double ranks = std::max(training.ranks, 1);
  const double forward = profile.pass_seconds(Pass::kForward);
  const double backward = profile.pass_seconds(Pass::kBackward);
  const double again = profile.pass_seconds(Pass::kRecompute);
  const auto rate = [](double flops, double seconds) {
    return absl::StrFormat("%.2f Gflop/s", Over(flops, seconds) / kGiga);
  };
  const double model = profile.model_flops(false), causal = profile.model_flops(true);
  double counted[kPasses] = {};
  for (const Module& unit : profile.units) {
    for (size_t pass = 0; pass < kPasses; ++pass) counted[pass] += unit.flops[pass].all();
  }
  std::string text = absl::StrFormat(
      "Profile of step %d: %d x %s, %s\n"
      "parameters                       %s\n"
      "tokens of the step               %s\n"
      "operations of a token            %s, of a causal model %s\n"
      "operations of the step           %s, of a causal model %s; made again %s\n"
      "seconds of the step              %.6f\n"
      "forward, of each rank            %.6f s, %s\n"
      "backward, of each rank           %.6f s, %s, %.2f times forward\n",
      training.step, training.ranks, training.device, training.dtype,
      Amount(static_cast<double>(training.parameters), ""), Amount(training.tokens_of_step, ""),
      Amount(training.flops_per_token, "flop"), Amount(training.causal_flops_per_token, "flop"),
      Amount(model, "flop"), Amount(causal, "flop"),
      Amount(profile.hardware_flops(false) - model, "flop"), profile.seconds, forward / ranks,
      rate(counted[0], forward), backward / ranks, rate(counted[1], backward),
      Over(backward, forward));
  if (again > 0) {
    absl::StrAppend(&text, absl::StrFormat("made again, of each rank         %.6f s, %s\n",
                                           again / ranks, rate(counted[2], again)));
  }
  absl::StrAppend(
      &text,
      absl::StrFormat("ceilings of a rank               %.2f Gflop/s, %.2f GB/s of memory, %s "
                      "to other ranks (%s)\n"
                      "MFU, HFU                         %s; of a causal model %s\n"
                      "limited by                       %s (compute %s, memory %s, network %s, "
                      "host %s)\n",
                      ceilings.flops_per_second / kGiga, ceilings.memory_bytes_per_second / kGiga,
                      ceilings.network_bytes_per_second > 0
                          ? absl::StrFormat("%.2f GB/s", ceilings.network_bytes_per_second / kGiga)
                          : "-",
                      ceilings.source, Utilizations(profile, false), Utilizations(profile, true),
                      LimitName(SumOf(profile)), Share(SumOf(profile)[0], Total(SumOf(profile))),
                      Share(SumOf(profile)[1], Total(SumOf(profile))),
                      Share(SumOf(profile)[2], Total(SumOf(profile))),
                      Share(SumOf(profile)[3], Total(SumOf(profile)))));
  if (profile.dropped > 0) {
    absl::StrAppend(&text, profile.dropped,
                    " operations were not recorded: times and rates are too small.\n");
  }
  return text;
}

// The largest modules of a depth by parameters, forward operations and forward seconds.
std::string TopOfDepth(int depth, std::vector<const Module*> modules, int top) {
  const std::pair<const char*, std::function<double(const Module&)>> measures[] = {
      {"parameters", [](const Module& m) { return static_cast<double>(m.parameters); }},
      {"forward operations", [](const Module& m) { return m.flops[0].all(); }},
      {"forward time", [](const Module& m) { return m.seconds[0]; }},
      {"backward time", [](const Module& m) { return m.seconds[1]; }},
  };
  std::string text = absl::StrFormat("depth %d:\n", depth);
  for (size_t i = 0; i < std::size(measures); ++i) {
    const auto& measure = measures[i].second;
    // Parts of units have no parameters of their own.
    const bool is_there = std::any_of(modules.begin(), modules.end(),
                                      [&](const Module* each) { return measure(*each) > 0; });
    if (!is_there) continue;
    std::stable_sort(modules.begin(), modules.end(),
                     [&](const Module* a, const Module* b) { return measure(*a) > measure(*b); });
    absl::StrAppend(&text, absl::StrFormat("    %-20s", measures[i].first));
    const size_t count = std::min(modules.size(), static_cast<size_t>(std::max(top, 1)));
    for (size_t m = 0; m < count; ++m) {
      const double value = measure(*modules[m]);
      absl::StrAppend(
          &text, m == 0 ? "" : ", ", modules[m]->name, " ",
          i < 2 ? Amount(value, i == 0 ? "" : "flop") : absl::StrFormat("%.3f ms", value / kMilli));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string ModulesText(const StepProfile& profile, const Options& options) {
  const int depth = options.module_depth < 0 ? 2 : std::min(options.module_depth, 2);
  std::string text = "\nModules: the largest of each depth, of all ranks\n";
  Module model = {.name = "model", .parameters = profile.training.parameters};
  std::vector<const Module*> units, parts;
  for (const Module& unit : profile.units) {
    for (size_t pass = 0; pass < kPasses; ++pass) {
      model.flops[pass] += unit.flops[pass];
      model.seconds[pass] += unit.seconds[pass];
    }
    // What is between the passes is no module.
    if (unit.parts.empty()) continue;
    units.push_back(&unit);
    for (const Module& part : unit.parts) parts.push_back(&part);
  }
  absl::StrAppend(&text, TopOfDepth(0, {&model}, 1));
  if (depth >= 1) absl::StrAppend(&text, TopOfDepth(1, units, options.top_modules));
  if (depth >= 2) absl::StrAppend(&text, TopOfDepth(2, parts, options.top_modules));
  return text;
}

void AppendUnit(const Module& unit, const StepProfile& profile, std::string& text) {
  const double ranks = std::max(profile.training.ranks, 1);
  const double work = unit.work_seconds();
  const double bytes = unit.bytes[0] + unit.bytes[1] + unit.bytes[2];
  const double flops_rate = Over(unit.all_flops(), work), bytes_rate = Over(bytes, work);
  absl::StrAppend(
      &text,
      absl::StrFormat(
          "%-18s %9.3f %9.3f %9.3f %6s %9.3f %9.2f %7s %8.2f %7s %7s", unit.name,
          unit.seconds[0] / ranks / kMilli, unit.seconds[1] / ranks / kMilli,
          unit.seconds[2] / ranks / kMilli,
          unit.seconds[0] > 0 ? absl::StrFormat("%.2f", unit.seconds[1] / unit.seconds[0]) : "-",
          unit.all_flops() / kGiga, flops_rate / kGiga,
          Share(flops_rate, profile.ceilings.flops_per_second), bytes_rate / kGiga,
          Share(bytes_rate, profile.ceilings.memory_bytes_per_second),
          Share(unit.least_seconds, work)),
      LimitsOf(unit.limits), "  ", LimitName(unit.limits), "\n");
}

std::string UnitsText(const StepProfile& profile, const Options& options) {
  std::string text = absl::StrFormat(
      "\nUnits: milliseconds of each rank, operations of all; what they reach, of peak, of the\n"
      "memory's bandwidth and of the roofline; and by what their time was limited\n"
      "%-18s %9s %9s %9s %6s %9s %9s %7s %8s %7s %7s %8s %8s %8s %8s  %s\n",
      "unit", "forward", "backward", "again", "b/f", "Gflop", "Gflop/s", "of peak", "GB/s",
      "of mem", "of roof", "compute", "memory", "network", "host", "limit");
  const bool has_parts = options.module_depth < 0 || options.module_depth >= 2;
  for (const Module& unit : profile.units) {
    AppendUnit(unit, profile, text);
    for (const Module& part : unit.parts) {
      if (has_parts && part.work_seconds() > 0) AppendUnit(part, profile, text);
    }
  }
  return text;
}

std::string KernelsText(const StepProfile& profile) {
  const Ceilings& ceilings = profile.ceilings;
  std::string text = absl::StrFormat(
      "\nKernels, collectives and waits by stream, of all ranks\n"
      "%-14s %-9s %-34s %7s %10s %9s %7s %9s %7s %9s %7s  %s\n",
      "stream", "pass", "name", "calls", "ms", "GB/s", "of mem", "Gflop/s", "of peak", "flop/B",
      "of roof", "limit");
  for (const Kernel& kernel : profile.kernels) {
    const Row& row = kernel.row;
    const bool waits = row.kind == Kind::kWait || row.kind == Kind::kCollective;
    // Too short to be of interest, beside a thousand times longer ones.
    if (waits && row.seconds < 1e-6) continue;
    const double bytes_rate = Over(row.bytes, row.seconds);
    const double flops_rate = Over(kernel.flops, row.seconds);
    std::string name(row.name);
    std::replace(name.begin(), name.end(), ' ', '_');
    std::string stream(row.stream);
    std::replace(stream.begin(), stream.end(), ' ', '_');
    absl::StrAppend(
        &text,
        absl::StrFormat(
            "%-14s %-9s %-34s %7d %10.3f %9.2f %7s %9.2f %7s %9.2f %7s  %s\n", stream,
            std::string(NameOf(row.place.pass)),
            row.kind == Kind::kWait ? absl::StrCat("wait_for_", name) : name, row.calls,
            row.seconds / kMilli, bytes_rate / kGiga,
            Share(bytes_rate, ceilings.memory_bytes_per_second), flops_rate / kGiga,
            Share(flops_rate, ceilings.flops_per_second), Over(kernel.flops, row.bytes),
            waits ? "-" : Share(LeastSeconds(kernel.flops, row.bytes, ceilings), row.seconds),
            waits ? LimitName(row.limits)
                  : std::string(Name(LimitOf(kernel.flops, row.bytes, ceilings)))));
  }
  return text;
}

// What each collective has reached beside what the machine can do of it.
std::string CallsText(const StepProfile& profile) {
  if (profile.calls.empty()) return "";
  std::string text = absl::StrFormat(
      "\nCalls of collectives by stream, of all ranks: sent, and by each rank in the time without\n"
      "that until all ranks had come to the call, where a trace tells it\n"
      "%-14s %-16s %7s %10s %10s %12s %9s %9s %8s\n",
      "stream", "call", "calls", "ms", "waiting", "MB", "GB/s", "ceiling", "reached");
  for (const CollectiveCalls& calls : profile.calls) {
    std::string stream(calls.stream);
    std::replace(stream.begin(), stream.end(), ' ', '_');
    const double ceiling = profile.ceilings.OfCollective(calls.name);
    // Of a rank alone nothing is sent.
    const double rate = Over(calls.sent_bytes, calls.seconds - calls.waiting_seconds);
    const auto giga = [](double bytes) {
      return bytes > 0 ? absl::StrFormat("%.3f", bytes / kGiga) : std::string("-");
    };
    absl::StrAppend(
        &text, absl::StrFormat("%-14s %-16s %7d %10.3f %10.3f %12.6f %9s %9s %8s\n", stream,
                               calls.name, calls.calls, calls.seconds / kMilli,
                               calls.waiting_seconds / kMilli, calls.sent_bytes / 1e6, giga(rate),
                               giga(ceiling), rate > 0 ? Share(rate, ceiling) : "-"));
  }
  return text;
}

std::string CollectivesText(const StepProfile& profile) {
  double bytes = 0;
  for (const Sent& sent : profile.sent) bytes += sent.bytes;
  if (bytes == 0) return "";
  std::string text = "\nCollectives: sent in the step, of all ranks\n";
  for (const Sent& sent : profile.sent) {
    if (sent.bytes == 0) continue;
    absl::StrAppend(&text, absl::StrFormat("%-24s %12.6f MB\n", sent.to, sent.bytes / 1e6));
  }
  const double ranks = std::max(profile.training.ranks, 1);
  const double all = Over(bytes, profile.collective_seconds);
  absl::StrAppend(
      &text,
      absl::StrFormat("in collectives           %12.6f s of each rank, waits for other ranks "
                      "included: %.3f GB/s sent, %s of the link\n"
                      "passes waited for them   %12.6f s of each rank\n",
                      profile.collective_seconds / ranks, all / kGiga,
                      Share(all, profile.ceilings.network_bytes_per_second),
                      profile.exposed_seconds / ranks));
  return text;
}

}  // namespace

std::string ProfileText(const StepProfile& profile, const Options& options) {
  std::string text = StepText(profile) + ModulesText(profile, options);
  if (!options.detailed) return text;
  return text + UnitsText(profile, options) + KernelsText(profile) + CallsText(profile) +
         CollectivesText(profile);
}

std::string ProfileLine(const StepProfile& profile) {
  return absl::StrFormat("Step %d: MFU, HFU %s of %.2f Gflop/s a rank (%s); limited by %s\n",
                         profile.training.step, Utilizations(profile, false),
                         profile.ceilings.flops_per_second / kGiga, profile.ceilings.source,
                         LimitName(SumOf(profile)));
}

}  // namespace brigade::profile
