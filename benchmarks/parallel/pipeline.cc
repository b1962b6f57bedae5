// A pipeline's step beside the simulated one, for every schedule: stages that wait instead of
// computing, so that they need no core each. benchmarks/parallel/README.md says how to read it.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/common/turns.h"
#include "brigade/benchmarks/parallel/rank.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/channels.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/parallel/pipeline/simulate.h"

ABSL_FLAG(int, stages, 4, "as threads");
ABSL_FLAG(int, micro_batches, 8, "of a step");
ABSL_FLAG(std::vector<std::string>, schedules,
          std::vector<std::string>({"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-v"}),
          "to compare: gpipe, 1f1b, interleaved:V, zb-h1 or zb-v, separated by commas");
ABSL_FLAG(double, pass_ms, 12,
          "how long a stage's forward pass takes, and each part of its "
          "backward pass; a chunk of several takes its share");
ABSL_FLAG(int64_t, elements, 1 << 16, "of fp32 that pass between stages");
ABSL_FLAG(int, rounds, 7, "turns of each schedule; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

using parallel::ItemKind;
using parallel::PipelineSchedule;
using parallel::PipelineTimes;
using parallel::StagePass;

// Waits, and knows how long it has waited.
class WaitingStage final : public parallel::StageModule {
 public:
  WaitingStage(const PipelineSchedule& schedule, int stage)
      : schedule_(schedule),
        stage_(stage),
        seconds_(absl::GetFlag(FLAGS_pass_ms) * 1e-3 / schedule.shape.schedule.chunks),
        spent_(static_cast<size_t>(schedule.shape.schedule.chunks)) {}

  absl::Status Forward(const StagePass& pass, device::Stream& compute) override {
    return Pass(pass, &Spent::forward, 1, compute);
  }
  absl::Status Backward(const StagePass& pass, device::Stream& compute) override {
    return Pass(pass, &Spent::input, 2, compute);
  }
  absl::Status BackwardInput(const StagePass& pass, device::Stream& compute) override {
    return Pass(pass, &Spent::input, 1, compute);
  }
  absl::Status BackwardWeight(const StagePass& pass, device::Stream& compute) override {
    return Pass(pass, &Spent::weight, 1, compute);
  }
  absl::Status Collective(int, device::Stream&) override { return absl::OkStatus(); }

  // Adds the means since the last call to the model's parts.
  void TakeTimes(PipelineTimes& times) {
    const double passes = schedule_.shape.micro_batches;
    for (size_t chunk = 0; chunk < spent_.size(); ++chunk) {
      const auto part =
          static_cast<size_t>(parallel::PartOf(schedule_.shape, stage_, static_cast<int>(chunk)));
      Spent& its = spent_[chunk];
      times.forward[part] = its.forward / passes;
      times.backward_input[part] = its.input / passes;
      times.backward_weight[part] = its.weight / passes;
      its = {};
    }
  }

 private:
  struct Spent {
    double forward = 0, input = 0, weight = 0;
  };

  absl::Status Pass(const StagePass& pass, double Spent::*kind, int parts,
                    device::Stream& compute) {
    double& spent = spent_[static_cast<size_t>(pass.chunk)].*kind;
    return compute.Enqueue({"pass"}, [this, &spent, parts](device::ThreadPool&) {
      const auto begin = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(std::chrono::duration<double>(parts * seconds_));
      spent += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      return absl::OkStatus();
    });
  }

  const PipelineSchedule& schedule_;
  const int stage_;
  const double seconds_;
  // By chunk.
  std::vector<Spent> spent_;
};

// One schedule: its lists, and of each turn what all stages have measured.
struct Contest {
  PipelineSchedule schedule;
  std::vector<PipelineTimes> times;
};

// A rank's.
struct State {
  std::unique_ptr<ParallelRank> rank;
  std::unique_ptr<parallel::Grid> grid;
  std::vector<std::unique_ptr<parallel::PipelineExecutor>> executors;
  std::vector<std::unique_ptr<WaitingStage>> stages;
  std::vector<size_t> turns;
};

absl::StatusOr<std::vector<Turn>> TurnsOf(int self, collectives::ThreadGroup& group,
                                          std::vector<Contest>& contests) {
  const auto state = std::make_shared<State>();
  BRIGADE_ASSIGN_OR_RETURN(state->rank, ParallelRank::Create(self, group));
  ParallelRank& rank = *state->rank;
  BRIGADE_ASSIGN_OR_RETURN(state->grid,
                           parallel::Grid::Create({.pipeline = rank.ranks()}, rank.communicator()));
  const parallel::BoundaryShape boundary = {absl::GetFlag(FLAGS_elements),
                                            precision::DType::kFloat32};
  std::vector<Turn> turns;
  state->turns.resize(contests.size());
  for (size_t c = 0; c < contests.size(); ++c) {
    Contest& contest = contests[c];
    BRIGADE_ASSIGN_OR_RETURN(
        auto executor, parallel::PipelineExecutor::Create(contest.schedule, boundary, *state->grid,
                                                          rank.context(), rank.stream()));
    state->executors.push_back(std::move(executor));
    state->stages.push_back(std::make_unique<WaitingStage>(contest.schedule, self));
    State* const at = state.get();
    turns.push_back({ToString(contest.schedule.shape.schedule),
                     [at, c] {
                       const absl::Status status = at->executors[c]->Run(*at->stages[c]);
                       return status.ok() ? at->executors[c]->Synchronize() : status;
                     },
                     {},
                     [at, c, &contest] {
                       at->stages[c]->TakeTimes(contest.times[at->turns[c]++]);
                       return absl::OkStatus();
                     },
                     state});
  }
  return turns;
}

absl::Status Main() {
  const int rounds = absl::GetFlag(FLAGS_rounds);
  std::vector<Contest> contests;
  for (const std::string& name : absl::GetFlag(FLAGS_schedules)) {
    BRIGADE_ASSIGN_OR_RETURN(const auto choice, parallel::ParseSchedule(name));
    BRIGADE_ASSIGN_OR_RETURN(PipelineSchedule schedule,
                             parallel::CreateSchedule({choice, absl::GetFlag(FLAGS_stages),
                                                       absl::GetFlag(FLAGS_micro_batches)}));
    PipelineTimes times = parallel::EqualTimes(schedule.shape, {});
    times.channels = parallel::ChannelModelOf(schedule.shape);
    // One turn is not counted.
    contests.push_back(
        {std::move(schedule), std::vector<PipelineTimes>(static_cast<size_t>(rounds) + 1, times)});
  }
  const auto turns_of = [&](int rank, collectives::ThreadGroup& group) {
    return TurnsOf(rank, group, contests);
  };
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<TurnTimes> measured,
                           TakeTurns(absl::GetFlag(FLAGS_stages), rounds, turns_of));
  std::cout << absl::StrFormat(
      "# %d stages as threads that wait instead of computing, %d micro-batches, %.1f ms for a "
      "stage's forward pass and each part of its backward pass: ms of a step, simulated from the "
      "passes' measured times, and measured; their ratio; and the bubbles\n"
      "%-16s %10s %10s %8s %12s %12s\n",
      absl::GetFlag(FLAGS_stages), absl::GetFlag(FLAGS_micro_batches), absl::GetFlag(FLAGS_pass_ms),
      "", "simulated", "measured", "ratio", "sim. bubble", "bubble");
  Figures figures;
  for (size_t c = 0; c < contests.size(); ++c) {
    Seconds simulated, simulated_bubble, bubble;
    for (size_t round = 0; round < measured[c].wall.size(); ++round) {
      BRIGADE_ASSIGN_OR_RETURN(
          const parallel::Simulation step,
          parallel::Simulate(contests[c].schedule, contests[c].times[round + 1]));
      simulated.push_back(step.makespan);
      simulated_bubble.push_back(step.Bubble());
      bubble.push_back(measured[c].wall[round] - (step.makespan - step.Bubble()));
    }
    const std::string name = ToString(contests[c].schedule.shape.schedule);
    const double ratio = MedianRatio(measured[c].wall, simulated);
    std::cout << absl::StrFormat("%-16s %10.2f %10.2f %8.3f %12.2f %12.2f\n", name,
                                 Median(simulated) * 1e3, Median(measured[c].wall) * 1e3, ratio,
                                 Median(simulated_bubble) * 1e3, Median(bubble) * 1e3);
    figures.Add(absl::StrCat(name, "_of_simulated"), ratio);
    figures.Add(absl::StrCat(name, "_seconds"), Median(measured[c].wall));
    figures.Add(absl::StrCat(name, "_bubble_seconds"), Median(bubble));
  }
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "a pipeline's step beside the simulated one",
                                      brigade::benchmarks::Main);
}
