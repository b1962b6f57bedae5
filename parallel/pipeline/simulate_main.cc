// Prints a pipeline's lists, times and buffers, and draws a picture:
// bazel run //parallel/pipeline:simulate -- --schedule=1f1b --stages=4 --micro_batches=8

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/device/command_line.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/pipeline/check.h"
#include "brigade/parallel/pipeline/picture.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/parallel/pipeline/simulate.h"

ABSL_FLAG(std::string, schedule, "1f1b", "gpipe, 1f1b, interleaved:V, zb-h1 or zb-v");
ABSL_FLAG(int, stages, 4, "ranks of the pipeline");
ABSL_FLAG(int, micro_batches, 8, "of a step");
ABSL_FLAG(std::string, forward, "1",
          "time of a stage's forward pass, in any unit: one number, or one for each stage");
ABSL_FLAG(std::string, backward, "1", "of the gradients of its inputs");
ABSL_FLAG(std::string, weights, "1",
          "of the gradients of its weights; schedules that do not split take the sum");
ABSL_FLAG(double, transfer, 0, "of a transfer");
ABSL_FLAG(std::string, channels, "edge",
          "which transfers wait for each other: all of a stage (stage), of one kind (direction), "
          "between the same two stages (edge)");
ABSL_FLAG(std::string, svg, "", "the file to draw into; without, none");

namespace brigade::parallel {
namespace {

// Times of parts, from a flag that has them of stages.
absl::StatusOr<std::vector<double>> TimesOfParts(const char* flag, const std::string& text,
                                                 const PipelineShape& shape) {
  std::vector<double> stages;
  for (const absl::string_view piece : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtod(piece, &stages.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, " is \"", text,
                                                     "\"; it must be one number, or one for each "
                                                     "stage with commas between them"));
    }
  }
  if (stages.size() == 1) stages.resize(static_cast<size_t>(shape.stages), stages[0]);
  if (stages.size() != static_cast<size_t>(shape.stages)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " has ", stages.size(), " numbers for ", shape.stages, " stages"));
  }
  std::vector<double> parts;
  for (int part = 0; part < shape.parts(); ++part) {
    parts.push_back(stages[static_cast<size_t>(PlaceOf(shape, part).stage)] /
                    shape.schedule.chunks);
  }
  return parts;
}

absl::StatusOr<PipelineTimes> TimesOfFlags(const PipelineShape& shape) {
  PipelineTimes times;
  BRIGADE_ASSIGN_OR_RETURN(times.forward,
                           TimesOfParts("forward", absl::GetFlag(FLAGS_forward), shape));
  BRIGADE_ASSIGN_OR_RETURN(times.backward_input,
                           TimesOfParts("backward", absl::GetFlag(FLAGS_backward), shape));
  BRIGADE_ASSIGN_OR_RETURN(times.backward_weight,
                           TimesOfParts("weights", absl::GetFlag(FLAGS_weights), shape));
  times.transfer = absl::GetFlag(FLAGS_transfer);
  const std::string channels = absl::GetFlag(FLAGS_channels);
  if (channels == "stage") {
    times.channels = ChannelModel::kOnePerStage;
  } else if (channels == "direction") {
    times.channels = ChannelModel::kOnePerDirection;
  } else if (channels != "edge") {
    return absl::InvalidArgumentError(
        absl::StrCat("--channels is \"", channels, "\"; it must be stage, direction or edge"));
  }
  return times;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  return file ? absl::OkStatus()
              : absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
}

absl::Status Main() {
  BRIGADE_ASSIGN_OR_RETURN(auto choice, ParseSchedule(absl::GetFlag(FLAGS_schedule)));
  const PipelineShape shape = {choice, absl::GetFlag(FLAGS_stages),
                               absl::GetFlag(FLAGS_micro_batches)};
  BRIGADE_ASSIGN_OR_RETURN(const PipelineSchedule schedule, CreateSchedule(shape));
  BRIGADE_ASSIGN_OR_RETURN(const PipelineTimes times, TimesOfFlags(shape));
  BRIGADE_ASSIGN_OR_RETURN(const auto buffers, Check(schedule));
  BRIGADE_ASSIGN_OR_RETURN(const Simulation simulation, Simulate(schedule, times));
  for (size_t stage = 0; stage < schedule.lists.size(); ++stage) {
    std::printf("stage %zu: %s\n", stage, ToString(schedule, schedule.lists[stage]).c_str());
  }
  std::printf("\n%5s %9s %9s %12s %7s %8s %17s %16s %9s\n", "stage", "work", "waits", "activations",
              "inputs", "outputs", "output gradients", "input gradients", "deferred");
  for (size_t stage = 0; stage < buffers.size(); ++stage) {
    const StageBuffers& each = buffers[stage];
    std::printf("%5zu %9.6g %9.6g %12lld %7lld %8lld %17lld %16lld %9lld\n", stage,
                simulation.work[stage], simulation.makespan - simulation.work[stage],
                static_cast<long long>(each.activations), static_cast<long long>(each.inputs),
                static_cast<long long>(each.outputs), static_cast<long long>(each.output_gradients),
                static_cast<long long>(each.input_gradients),
                static_cast<long long>(each.deferred));
  }
  const double work = *std::max_element(simulation.work.begin(), simulation.work.end());
  std::printf("\n%s: time %.6g, bubble %.6g", ToString(choice).c_str(), simulation.makespan,
              simulation.Bubble());
  if (work > 0) std::printf(", %.1f %% of the work", 100 * simulation.Bubble() / work);
  std::printf("; buffers are of one chunk and one micro-batch, %d chunks on each stage\n",
              choice.chunks);
  const std::string svg = absl::GetFlag(FLAGS_svg);
  if (svg.empty()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(WriteFile(device::FromUsersFolder(svg), DrawSvg(schedule, simulation)));
  std::printf("%s\n", svg.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::parallel

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv, "Lists, times, buffers and a picture of a pipeline's schedule.",
      brigade::parallel::Main);
}
