#ifndef BRIGADE_PARALLEL_PIPELINE_ITEM_H_
#define BRIGADE_PARALLEL_PIPELINE_ITEM_H_

// A pipeline's schedule as data: for each stage the list of what it does in a step, one item after
// the other. All replicas of a stage run the same list.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "brigade/parallel/pipeline/schedule_kind.h"

namespace brigade::parallel {

enum class ItemKind : uint8_t {
  // Passes of a chunk for a micro-batch. kBackward computes the gradients of inputs and of weights,
  // the two after it one of them each.
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  // Transfers between neighbouring parts of the model that lie on two stages. The chunk of the
  // sender has computed what is sent, the chunk of the receiver is about to use it.
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
  // A collective over stages (PipelineSchedule::collectives).
  kCollective,
};

bool IsComputation(ItemKind kind);
bool IsTransfer(ItemKind kind);
bool IsSend(ItemKind kind);

struct PipelineItem {
  ItemKind kind = ItemKind::kForward;
  // Of the stage, from 0 on.
  int chunk = 0;
  // Of kCollective: which one.
  int micro_batch = 0;

  friend bool operator==(const PipelineItem&, const PipelineItem&) = default;
};

// What several stages do together beside the schedule: the sum of tied weights over the first and
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

  friend bool operator==(const PipelineSchedule&, const PipelineSchedule&) = default;
};

// InvalidArgument naming the collective and its stages, unless these are of `stages` stages in
// ascending order.
absl::Status Validate(const StageCollective& collective, size_t stages);

// The chunks of a list's computations, in order, those of one chunk that follow each other once:
// what a stage that has weights only while it uses them fetches in a step.
std::vector<int> RunsOf(const StageList& list);

// Adds a collective to the ends of its stages' lists. Errors of Validate.
absl::Status AddCollective(StageCollective collective, PipelineSchedule& schedule);

// The other end of a transfer of a stage: where it lies, and what it is there.
struct TransferEnd {
  int stage = 0;
  PipelineItem item = {};
};

// None where the model has no such part, or where it lies on the same stage: nothing is sent then.
std::optional<TransferEnd> PeerOf(const PipelineShape& shape, int stage,
                                  const PipelineItem& transfer);

// F0 for the forward pass of micro-batch 0, B0 for its backward pass or the part of it that
// computes the gradients of inputs, W0 for that of weights; >a0 and <a0 for its activation sent and
// received, >g0 and <g0 for its gradient; behind these as many primes as the chunk's number. A
// collective is its name.
std::string ToString(const PipelineSchedule& schedule, const PipelineItem& item);
// The items of a list, with spaces between them.
std::string ToString(const PipelineSchedule& schedule, const StageList& list);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_ITEM_H_
