#ifndef BRIGADE_TRAIN_CODEC_CHOICE_H_
#define BRIGADE_TRAIN_CODEC_CHOICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/parallel/grid.h"
#include "brigade/train/config/config.h"
#include "brigade/train/job.h"
#include "brigade/train/task.h"
#include "brigade/zero/plan/plan.h"

// What stands for "auto" in keys of fewer bytes (OpenCodecs): codes where the cost model says that
// a step's exchanges are then shorter (collectives/tuning/codec_cost.h).
namespace brigade::train {

struct ChosenCodecs {
  bool weights = false;
  bool frozen_weights = false;
  bool gradients = false;
  bool signs = false;
  // ZeroOptions::node_ranks, of gradients and signs.
  int node_ranks = 0;
  // A line for each key that was open: what was chosen, with the seconds of a step by the model.
  std::string text = {};
};

// By the sums, over the plan's buckets and a step's micro-batches, of what the model says of each
// collective: gradients as they are, with the config's algorithm, or as codes, or as signs; weights
// as they are or as codes. So nothing is chosen that is slower by the model; of equals, what is as
// it is. What runs beside passes counts in full. Codes that the other options refuse are not
// chosen, and the line says why.
//
// machine      Of all ranks, with figures and memory_bytes_per_s.
// sharers      The ranks of these that share a state with rank 0, ascending; `plan` is theirs.
// Errors       Those of the cost model.
absl::StatusOr<ChosenCodecs> ChooseCodecs(const TrainConfig& config,
                                          const collectives::Topology& machine,
                                          absl::Span<const int> sharers, const zero::Plan& plan);

// Writes into config.zero what was chosen, and into config.codec_choice the text.
void TakeCodecs(const ChosenCodecs& chosen, TrainConfig& config);

// The job with what its config leaves open, which is not nothing. A call of all ranks, which take
// the choice of rank 0: measured figures are the same on all, but groups of a model's parts may lie
// otherwise. Measures the machine where the config has no figures (MeasureTopology: seconds).
// `local_rank`: among those of this host; with nodes of the config it does not count.
//
// Errors       Those of the above, of MeasureTopology and of the communicator; InvalidArgument
//              naming brigade.ranks_per_node where ranks are not numbered host by host.
absl::StatusOr<Job> WithChosenCodecs(const Job& job, const Task& task, parallel::Grid& grid,
                                     int local_rank, device::Context& context,
                                     device::Stream& stream);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CODEC_CHOICE_H_
