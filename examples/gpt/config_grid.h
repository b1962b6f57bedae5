#ifndef BRIGADE_EXAMPLES_GPT_CONFIG_GRID_H_
#define BRIGADE_EXAMPLES_GPT_CONFIG_GRID_H_

// What the keys of a config and the flags beside it say together of the ranks that share a model.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/examples/gpt/config.h"
#include "brigade/examples/gpt/config_keys.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/schedule_kind.h"

namespace brigade::gpt {

// Flags before the file. All numbers are given; schedule and partition only where a user has.
ModelParallelism Merged(const Settings& settings, const ModelParallelism& flags);

// As ModelOptions has it.
int PiecesOf(const Settings& settings, const ModelParallelism& flags);

// With the data ranks that are left. InvalidArgument naming the numbers that are no grid of `ranks`
// ranks, and what a grid without such ranks has no use for.
absl::StatusOr<parallel::GridShape> GridOf(const ModelParallelism& model, int ranks);

// InvalidArgument naming the keys of the numbers that do not fit.
absl::Status CheckPipeline(const parallel::PipelineShape& shape);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_CONFIG_GRID_H_
