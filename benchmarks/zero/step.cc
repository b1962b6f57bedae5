// A training step of a synthetic model in each ZeRO stage, beside the sum of its parts measured
// alone; and how much of the communication a slow link leaves exposed. benchmarks/zero/README.md
// says how to read it.

#include <algorithm>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/zero/ranks.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/plan/memory_model.h"

ABSL_FLAG(int, ranks, 2, "how many ranks, as threads");
ABSL_FLAG(int, units, 16, "units of the model");
ABSL_FLAG(int, parameters_per_unit, 4, "parameters of a unit");
ABSL_FLAG(int64_t, unit_elements, 1 << 20, "elements of a unit");
ABSL_FLAG(int, steps, 2, "steps of a turn");
ABSL_FLAG(int, rounds, 9, "turns of each contestant; medians count");
ABSL_FLAG(bool, overlap, true, "also measure how much communication a slow link leaves exposed");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

// Of a weight, or a gradient.
constexpr double kBytes = sizeof(precision::BFloat16);

Figures figures;

absl::Status MeasureSteps(const SyntheticModel& model) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  const int steps = absl::GetFlag(FLAGS_steps);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  enum { kTransformer = 4, kCollectives, kCollectives3, kWhole, kSlice };
  BRIGADE_ASSIGN_OR_RETURN(
      auto times,
      Compete(ranks, model, std::numeric_limits<double>::infinity(), rounds,
              [&](Rank& run) -> absl::StatusOr<std::vector<Contestant>> {
                std::vector<Contestant> contestants;
                const zero::Plan* plan = nullptr;
                BRIGADE_RETURN_IF_ERROR(run.CreateArrays());
                for (int stage = 0; stage < zero::kStages; ++stage) {
                  BRIGADE_ASSIGN_OR_RETURN(auto zero, run.CreateZero(stage, /*overlap=*/false));
                  contestants.push_back(run.Step(absl::StrCat("stage ", stage), zero, steps));
                  plan = &zero->plan();
                }
                contestants.push_back(run.TransformerAlone(steps));
                contestants.push_back(run.Collectives(*plan, false, steps));
                contestants.push_back(run.Collectives(*plan, true, steps));
                contestants.push_back(run.Optimizer("whole", model.elements(), steps));
                contestants.push_back(run.Optimizer("slice", model.elements() / ranks, steps));
                return contestants;
              }));
  std::cout << absl::StrFormat(
      "# %d ranks, %d units of %d parameters, %d elements each, bfloat16, AdamW, no overlap; ms "
      "per step\n",
      ranks, model.units, model.parameters_per_unit, model.unit_elements);
  std::cout << absl::StrFormat("%6s %9s %11s %12s %10s %9s %12s %9s %10s %9s\n", "stage", "step",
                               "transformer", "collectives", "optimizer", "step/sum", "of stage 0",
                               "host %", "memory MB", "sent MB");
  const auto ratio_to = [&](size_t a, const std::vector<size_t>& b) {
    Seconds sums(times[a].wall.size(), 0.0);
    for (const size_t each : b) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += times[each].wall[i];
    }
    return MedianRatio(times[a].wall, sums);
  };
  for (size_t stage = 0; stage < zero::kStages; ++stage) {
    const size_t collectives = stage == 3 ? kCollectives3 : kCollectives;
    const size_t optimizer = stage == 0 ? kWhole : kSlice;
    const double of_sum = ratio_to(stage, {kTransformer, collectives, optimizer});
    const double of_stage0 = ratio_to(stage, {0});
    Seconds host;
    for (size_t i = 0; i < times[stage].host.size(); ++i) {
      const double others = times[kTransformer].host[i] + times[collectives].host[i];
      host.push_back((times[stage].host[i] - others) / times[stage].wall[i]);
    }
    const auto ms = [&](size_t i) { return Median(times[i].wall) / steps * 1e3; };
    const zero::ZeroOptions options = OptionsOf(model, static_cast<int>(stage), false);
    BRIGADE_ASSIGN_OR_RETURN(
        auto plan, zero::Plan::Create(model.Spec(), {ranks, options.dtype, options.bucket_elements,
                                                     options.tied_apart}));
    const auto memory =
        static_cast<double>(zero::Total(zero::MemoryOf(plan, options), device::Tier::kDevice));
    const double sent_bytes = static_cast<double>(times[stage].sent) / steps;
    std::cout << absl::StrFormat("%6d %9.2f %11.2f %12.2f %10.2f %9.3f %12.3f %9.2f %10.1f %9.1f\n",
                                 stage, ms(stage), ms(kTransformer), ms(collectives), ms(optimizer),
                                 of_sum, of_stage0, Median(host) * 100, memory * 1e-6,
                                 sent_bytes * 1e-6);
    const std::string prefix = absl::StrCat("stage_", stage, "_");
    figures.Add(prefix + "ms", ms(stage));
    figures.Add(prefix + "of_sum", of_sum);
    figures.Add(prefix + "of_stage_0", of_stage0);
    figures.Add(prefix + "host_share", Median(host));
  }
  return absl::OkStatus();
}

// With the link so slow that a bucket's communication takes 0.7 of a unit's backward: all but the
// last bucket's fits beside it.
absl::Status MeasureOverlap(SyntheticModel model) {
  model.passes = 256;
  model.unit_elements = std::min(model.unit_elements, int64_t{1} << 20);
  const int ranks = absl::GetFlag(FLAGS_ranks);
  const auto alone = [](Rank& run) -> absl::StatusOr<std::vector<Contestant>> {
    return std::vector<Contestant>{run.BackwardAlone()};
  };
  constexpr double kFast = std::numeric_limits<double>::infinity();
  BRIGADE_ASSIGN_OR_RETURN(auto calm, Compete(ranks, model, kFast, 3, alone));
  const double unit_seconds = Median(calm[0].wall) / model.units;
  const double bucket_bytes =
      static_cast<double>(model.unit_elements) * kBytes * (ranks - 1) / ranks;
  for (int stage = 0; stage < 3; ++stage) {
    // Stage 0 also gathers them.
    const double sent = bucket_bytes * (stage == 0 ? 2 : 1);
    BRIGADE_ASSIGN_OR_RETURN(
        auto times, Compete(ranks, model, sent / (0.7 * unit_seconds), absl::GetFlag(FLAGS_rounds),
                            [&](Rank& run) -> absl::StatusOr<std::vector<Contestant>> {
                              BRIGADE_ASSIGN_OR_RETURN(auto overlapped,
                                                       run.CreateZero(stage, true));
                              BRIGADE_ASSIGN_OR_RETURN(auto serial, run.CreateZero(stage, false));
                              return std::vector<Contestant>{run.Backward("overlapped", overlapped),
                                                             run.Backward("serial", serial),
                                                             run.BackwardAlone()};
                            }));
    // What backward does not take longer than alone is hidden.
    const double link = 0.7 * unit_seconds * model.units;
    Seconds hidden;
    for (size_t i = 0; i < times[0].wall.size(); ++i) {
      hidden.push_back(link - (times[0].wall[i] - times[2].wall[i]));
    }
    const double share = Median(hidden) / (link * (model.units - 1) / model.units);
    std::cout << absl::StrFormat(
        "overlap, stage %d: backward %.1f ms alone, %.1f with communication after it, %.1f beside "
        "it: %.1f %% of "
        "what fits is hidden\n",
        stage, Median(times[2].wall) * 1e3, Median(times[1].wall) * 1e3,
        Median(times[0].wall) * 1e3, share * 100);
    figures.Add(absl::StrCat("overlap_stage_", stage), share);
  }
  return absl::OkStatus();
}

absl::Status Main() {
  SyntheticModel model;
  model.units = absl::GetFlag(FLAGS_units);
  model.parameters_per_unit = absl::GetFlag(FLAGS_parameters_per_unit);
  model.unit_elements = absl::GetFlag(FLAGS_unit_elements);
  BRIGADE_RETURN_IF_ERROR(MeasureSteps(model));
  if (absl::GetFlag(FLAGS_overlap)) BRIGADE_RETURN_IF_ERROR(MeasureOverlap(model));
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "ZeRO's steps", brigade::benchmarks::Main);
}
