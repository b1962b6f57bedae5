#ifndef BRIGADE_CHECKPOINT_LOADER_H_
#define BRIGADE_CHECKPOINT_LOADER_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/checkpoint/fields.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::checkpoint {

// The iteration of the newest checkpoint in a root, before `before`, that all ranks have: where
// hosts have disks of their own, what ends all between their commits leaves a newer one on some.
// Nothing if no rank has one, or such a folder. A call of all ranks. NotFound, naming a rank, if
// some ranks have checkpoints and there is none that all have.
absl::StatusOr<std::optional<int64_t>> FindLatest(
    const std::string& root, collectives::Communicator& communicator,
    int64_t before = std::numeric_limits<int64_t>::max(),
    device::SystemCalls& system = device::SystemCalls::Real());

// SetAside on each rank for what it has of later steps than `step`, to which a training that goes
// on from there comes again. The highest step of any rank's, or nothing. A call of all ranks.
absl::StatusOr<std::optional<int64_t>> SetAsideLater(
    const std::string& root, int64_t step, collectives::Communicator& communicator,
    device::SystemCalls& system = device::SystemCalls::Real());

struct LoadOptions {
  // Fields that may be others than in the checkpoint (CheckSame): then those here hold.
  std::vector<std::string> may_differ = {};
};

// Loads a checkpoint that any number of ranks saved in any stage and on any grid, with its step
// state and learning rates; returns the step state. A call of all ranks, which are those of all
// groups that have parts of the model (ModelPart); waits. Each rank reads what it owns, in chunks.
//
// Determinism  With the numbers of ranks and of micro-batches of the training that saved it, this
//              one goes on with the bits that it would have had. Others have the exact state, and
//              sums later in another order; neither number is in a checkpoint.
// Memory       ZeroOptimizer::LoadState.
// Errors       On all ranks. InvalidArgument naming the first field that differs: parameters, model
//              and options, or `training`, which was given to Saver::Begin; or naming the parameter
//              of a part that does not fit, or that is no group's (ModelPart). Nothing is changed
//              then, nor where a rank cannot read the manifest or sees another one. DataLoss naming
//              file, tensor and sums for what is damaged; of that, and of errors in reading, the
//              state is not defined any more: load another one.
absl::StatusOr<kernels::StepState> Load(const std::string& folder, const Fields& training,
                                        zero::ZeroOptimizer& zero,
                                        collectives::Communicator& communicator,
                                        const LoadOptions& options = {},
                                        device::SystemCalls& system = device::SystemCalls::Real(),
                                        const ModelPart& part = {});

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_LOADER_H_
