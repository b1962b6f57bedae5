#include "brigade/examples/gpt/pipeline_report.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/counted.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/parallel/pipeline/simulate.h"

namespace brigade::gpt {
namespace {

using parallel::PipelineShape;

double SecondsOf(const train::RankSummary& rank) {
  double sum = 0;
  for (const train::ChunkSummary& chunk : rank.chunks) sum += chunk.seconds();
  return sum;
}

// The rank of each stage that computes longest.
std::vector<int> SlowestRanks(const Job& job, absl::Span<const train::RankSummary> ranks) {
  std::vector<int> slowest(static_cast<size_t>(job.config.grid.pipeline), -1);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    const int stage = parallel::CoordinatesOf(job.config.grid, rank).pipeline;
    int& first = slowest[static_cast<size_t>(stage)];
    if (first < 0 || SecondsOf(ranks[r]) > SecondsOf(ranks[static_cast<size_t>(first)])) {
      first = rank;
    }
  }
  return slowest;
}

// "embedding to h.1", "h.2".
std::string NameOf(const ModelOptions& model, const parallel::StageRange& stages) {
  const auto name = [&](int stage) -> std::string {
    if (stage == 0) return "embedding";
    return stage == model.layers + 1 ? "head" : absl::StrCat("h.", stage - 1);
  };
  if (stages.first == stages.end) return "?";
  if (stages.first + 1 == stages.end) return name(stages.first);
  return absl::StrCat(name(stages.first), " to ", name(stages.end - 1));
}

std::string Share(double part, double whole) {
  return whole > 0 ? absl::StrFormat("%10.1f %%", 100 * part / whole) : "";
}

// How long a step takes, and how much longer that is than the work of a stage.
std::string Line(const char* name, double step, double work) {
  return absl::StrFormat("%11s %12.6f %12.6f%s\n", name, step, step - work,
                         Share(step - work, work));
}

absl::StatusOr<parallel::Simulation> SimulationOf(const PipelineShape& shape,
                                                  const parallel::PipelineTimes& times) {
  BRIGADE_ASSIGN_OR_RETURN(const auto schedule, parallel::CreateSchedule(shape));
  return parallel::Simulate(schedule, times);
}

}  // namespace

std::string PipelineReport(const Job& job, absl::Span<const train::RankSummary> ranks) {
  const PipelineShape shape = job.config.pipeline_shape();
  if (shape.stages == 1) return "";
  const bool splits = parallel::SplitsBackward(shape.schedule.kind);
  const std::vector<int> slowest = SlowestRanks(job, ranks);
  std::string text = absl::StrCat(
      "\nPipeline, ", parallel::ToString(shape.schedule), ": ",
      device::Counted(shape.stages, "stage"), " with ",
      device::Counted(shape.schedule.chunks, "part"), " of the model each, by ",
      parallel::ToString(job.config.partition), "; ",
      device::Counted(shape.micro_batches, "micro-batch"),
      "\nSeconds of a micro-batch's passes, without waits and exchanges, on the rank of each stage "
      "that\ncomputes longest\n",
      absl::StrFormat("%8s %8s %8s %12s %12s", "part", "stage", "rank", "forward",
                      splits ? "inputs" : "backward"),
      splits ? absl::StrFormat(" %12s", "weights") : "", "  layers\n");
  parallel::PipelineTimes times;
  parallel::StageTimes mean = {.forward = 0, .backward_input = 0, .backward_weight = 0};
  for (int part = 0; part < shape.parts(); ++part) {
    const auto [stage, chunk] = parallel::PlaceOf(shape, part);
    const int rank = slowest[static_cast<size_t>(stage)];
    const train::ChunkSummary& summary =
        ranks[static_cast<size_t>(rank)].chunks[static_cast<size_t>(chunk)];
    times.forward.push_back(summary.forward);
    times.backward_input.push_back(summary.backward_input);
    times.backward_weight.push_back(summary.backward_weight);
    mean.forward += summary.forward / shape.stages;
    mean.backward_input += summary.backward_input / shape.stages;
    mean.backward_weight += summary.backward_weight / shape.stages;
    absl::StrAppend(&text,
                    absl::StrFormat("%8d %8d %8d %12.6f %12.6f", part, stage, rank, summary.forward,
                                    summary.backward_input),
                    splits ? absl::StrFormat(" %12.6f", summary.backward_weight) : "", "  ",
                    NameOf(job.model, summary.stages), "\n");
  }
  const bool has_times = std::all_of(slowest.begin(), slowest.end(), [&](int rank) {
    return SecondsOf(ranks[static_cast<size_t>(rank)]) > 0;
  });
  if (!has_times) return text + "Some stage's passes were not recorded: no step is simulated.\n";

  const auto simulation = SimulationOf(shape, times);
  if (!simulation.ok()) return absl::StrCat(text, simulation.status().message(), "\n");
  double measured = 0;
  for (const train::RankSummary& rank : ranks) {
    measured = std::max(measured,
                        rank.time.wall() / static_cast<double>(std::max<int64_t>(rank.steps, 1)));
  }
  absl::StrAppend(&text, absl::StrFormat("%8s %12s%12s\n", "stage", "computes", "of a step"));
  for (size_t stage = 0; stage < slowest.size(); ++stage) {
    absl::StrAppend(&text, absl::StrFormat("%8d %12.6f", stage, simulation->work[stage]),
                    Share(simulation->work[stage], measured), "\n");
  }
  const double work = *std::max_element(simulation->work.begin(), simulation->work.end());
  absl::StrAppend(&text,
                  absl::StrFormat("%11s %12s %12s%12s\n", "", "step", "bubble", "of the work"),
                  Line("simulated", simulation->makespan, work));
  if (measured > 0) absl::StrAppend(&text, Line("measured", measured, work));
  if (const std::optional<double> bubble = parallel::Bubble(shape, mean); bubble.has_value()) {
    const double of_mean =
        shape.micro_batches * (mean.forward + mean.backward_input + mean.backward_weight);
    absl::StrAppend(&text, Line("closed form", of_mean + *bubble, of_mean));
  }
  return text +
         "Simulated without transfers; measured with them, with the norm and the update. The "
         "closed form\nis of stages that are all alike.\n";
}

}  // namespace brigade::gpt
