#ifndef BRIGADE_TRAIN_STAGE_PARTS_H_
#define BRIGADE_TRAIN_STAGE_PARTS_H_

// Where a pipeline cuts a model: a part is a range of its units, and a stage of the pipeline has a
// part for each of its chunks.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/parallel/pipeline/stage_range.h"
#include "brigade/train/config/config.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::train {

// parts() + 1 boundaries in the model's units: by their weights (parallel::LeastMaximum), or as
// given. `limit` may be null.
//
// Errors       Those of parallel/pipeline/partition.h.
absl::StatusOr<std::vector<int>> PartsOf(absl::Span<const double> weights,
                                         const parallel::PipelineShape& pipeline,
                                         const parallel::PartitionChoice& partition,
                                         const parallel::MemoryLimit* limit);

// The parameters of each unit, those that it is tied to among them: where the two are in two parts
// each has a copy, with a gradient and optimizer state of its own.
std::vector<double> ParametersOfUnits(const zero::ModelSpec& model);

// The parts of a pipeline's stage, one for each chunk, in ascending order.
std::vector<parallel::StageRange> ChunksOf(const parallel::PipelineShape& pipeline,
                                           absl::Span<const int> boundaries, int stage);

// A call of all ranks, whose memory, and with it boundaries, may be others: parts that do not fit
// together would be another model. InvalidArgument on all unless they are the same.
absl::Status AgreeOnParts(absl::Span<const int> boundaries, collectives::Communicator& world);

// What cannot be known of a config without the model: InvalidArgument naming the keys and both
// numbers if the model has fewer units, which are `what` ("embedding, 4 blocks and head"), than the
// pipeline has parts, or if boundaries that are given are none of it.
absl::Status CheckParts(int units, absl::string_view what, const TrainConfig& config);

// InvalidArgument naming the parameter that units of different stages share, unless these are the
// first and the last one, whose ranks alone have a group (parallel::GridGroup::kTied).
absl::Status CheckTies(const zero::ModelSpec& model, const parallel::PipelineShape& pipeline,
                       absl::Span<const int> boundaries);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_STAGE_PARTS_H_
