#ifndef BRIGADE_EXAMPLES_GPT_PIPELINE_PARTS_H_
#define BRIGADE_EXAMPLES_GPT_PIPELINE_PARTS_H_

// Where a pipeline cuts the model: its stages are those of activations.h, the embedding, each
// block, the head; a part is a range of them, and a stage of the pipeline has a part for each of
// its chunks.

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/train/config/config.h"
#include "brigade/train/job.h"
#include "brigade/train/stage_parts.h"

namespace brigade::gpt {

// What each stage of the model weighs, where parts are to weigh the same:
//   kParameters  its parameters. The tokens count for the embedding and for the head: where these
//                are in two parts each has a copy, with a gradient and optimizer state of its own.
//   kFlops       the operations of its passes (CountOperations). The embedding has none that count.
//   kTime        forward and backward pass by `costs`, which are those of trial.h, the same on all
//                ranks (AgreeOnCosts).
// Passes that recomputation makes again do not count. Not for kBoundaries, which weigh nothing.
std::vector<double> StageWeights(const PassShape& shape, parallel::PartitionChoice::By by,
                                 const PassCosts& costs);

// What a stage of the pipeline can hold, of a job whose ranks have a limit; nullopt without one,
// and of one stage, for which there is no choice: what it lacks is told where it allocates. It is
// what of the model each part must at least have, so that what does not fit is refused beforehand:
// the ZeRO paper's bytes (PaperBytes) in 16-bit training by Adam, else the weights, neither of what
// is offloaded; and for each micro-batch that the schedule keeps (PeakActivations, as a mean over
// chunks) what recomputation leaves of each stage's activations: all without one, a stage's input
// with block, at most that with segments and a budget, where none counts. Buckets, workspaces and
// passing memory do not count: a rank may lack memory for them afterwards.
std::optional<parallel::MemoryLimit> MemoryLimitOf(const train::Job& job, const PassShape& shape,
                                                   const parallel::PipelineShape& pipeline);

// parts() + 1 boundaries in the model's stages: by their weights (parallel::LeastMaximum), or as
// given. `limit` may be null; `costs` are of kTime alone.
//
// Errors       Those of parallel/pipeline/partition.h.
absl::StatusOr<std::vector<int>> PartsOf(const PassShape& shape,
                                         const parallel::PipelineShape& pipeline,
                                         const parallel::PartitionChoice& partition,
                                         const PassCosts& costs,
                                         const parallel::MemoryLimit* limit);

using train::ChunksOf;

// What cannot be known of a config without the model: InvalidArgument naming the keys and both
// numbers if the model has fewer stages than the pipeline has parts, or if boundaries that are
// given are none of it.
absl::Status CheckParts(const ModelOptions& model, const train::TrainConfig& config);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_PIPELINE_PARTS_H_
