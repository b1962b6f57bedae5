#ifndef BRIGADE_PARALLEL_PIPELINE_SIMULATE_H_
#define BRIGADE_PARALLEL_PIPELINE_SIMULATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/schedule_kind.h"

namespace brigade::parallel {

// Which transfers of a stage go one after the other, in the order of its list.
enum class ChannelModel : uint8_t {
  // All of them: one communicator.
  kOnePerStage,
  // Activations, and gradients: one communicator each. What 1F1B needs.
  kOnePerDirection,
  // Those between the same two stages, from the one to the other, of one kind. What schedules with
  // several chunks need.
  kOnePerEdge,
};

// In any unit.
struct PipelineTimes {
  // For each part of the model, in the order of forward passes. A backward pass that is not split
  // takes the sum of the last two.
  std::vector<double> forward = {};
  std::vector<double> backward_input = {};
  std::vector<double> backward_weight = {};
  // Of one transfer.
  double transfer = 0;
  ChannelModel channels = ChannelModel::kOnePerEdge;
};

// All chunks of all stages alike.
PipelineTimes EqualTimes(const PipelineShape& shape, const StageTimes& times);

struct TimeSpan {
  double begin = 0;
  double end = 0;
};

struct Simulation {
  // Of each item of each list. A send and its receive have the same.
  std::vector<std::vector<TimeSpan>> spans = {};
  // When the last item ends.
  double makespan = 0;
  // How long each stage computes, and from when to when, its waits between computations included.
  std::vector<double> work = {};
  std::vector<TimeSpan> active = {};

  // How much longer the step takes than the stage that computes longest.
  double Bubble() const;
  // How long a stage waits between its first and its last computation, of the stage that waits
  // longest: what the authors of zero-bubble schedules call the bubble.
  double LongestWait() const;
};

// Runs the lists on a clock. A stage computes one item after the other. A transfer starts when what
// it sends is computed and the earlier ones of its channel, on both stages, have ended; nothing
// else holds it up. A computation waits for what it receives; a collective for all of its stages,
// and takes no time. Where the lists have no transfers, these take no time and no channel.
//
// Errors       InvalidArgument naming the numbers if times are not as many as parts, or negative;
//              an item that is wrong (ListIndex); a stage's item that waits for what never comes.
absl::StatusOr<Simulation> Simulate(const PipelineSchedule& schedule, const PipelineTimes& times);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_SIMULATE_H_
