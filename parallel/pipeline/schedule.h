#ifndef BRIGADE_PARALLEL_PIPELINE_SCHEDULE_H_
#define BRIGADE_PARALLEL_PIPELINE_SCHEDULE_H_

// A pipeline's schedule as data: for each stage the list of what it does in a step, one item after
// the other. All replicas of a stage run the same list.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/parallel/pipeline/schedule_kind.h"

namespace brigade::parallel {

enum class ItemKind : uint8_t {
  // Passes of a chunk for a micro-batch. kBackward computes the gradients of inputs and of weights;
  // the two after it compute one of them.
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  // Transfers between neighbouring parts of the model. The sender's chunk has computed what it
  // sends, the receiver's chunk is about to use it.
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
  // A collective over stages (PipelineSchedule::collectives).
  kCollective,
};

struct PipelineItem {
  ItemKind kind = ItemKind::kForward;
  // Of the stage, from 0 on.
  int chunk = 0;
  // Of kCollective: which one.
  int micro_batch = 0;

  friend bool operator==(const PipelineItem&, const PipelineItem&) = default;
};

// What several stages do together, beside the schedule: the sum of tied weights over the first and
// the last stage, the norm over all.
struct StageCollective {
  std::string name = {};
  // In ascending order.
  std::vector<int> stages = {};

  friend bool operator==(const StageCollective&, const StageCollective&) = default;
};

using StageList = std::vector<PipelineItem>;

struct PipelineSchedule {
  PipelineShape shape = {};
  // One for each stage.
  std::vector<StageList> lists = {};
  std::vector<StageCollective> collectives = {};
};

bool IsComputation(ItemKind kind);
bool IsTransfer(ItemKind kind);

// Where the other end of a transfer lies; none where the model has no such part.
std::optional<PartPlace> PeerOf(const PipelineShape& shape, int stage, const PipelineItem& transfer);

// The lists with their computations alone. Errors of Validate (schedule_kind.h).
absl::StatusOr<PipelineSchedule> ComputationsOf(const PipelineShape& shape);

// The same with transfers placed by PlaceTransfers (transfers.h): what a pipeline runs.
absl::StatusOr<PipelineSchedule> MakeSchedule(const PipelineShape& shape);

// Adds a collective to the ends of its stages' lists.
void AddCollective(StageCollective collective, PipelineSchedule& schedule);

// F0, B0, I0 W0 for the passes of micro-batch 0, where I and W are the two parts of B; >a0 and <a0
// for its activation sent and received, >g0 and <g0 for its gradient; with as many primes behind as
// the chunk's number; a collective's name. With a space between items.
std::string ToString(const PipelineSchedule& schedule, const PipelineItem& item);
std::string ToString(const PipelineSchedule& schedule, int stage);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_SCHEDULE_H_
