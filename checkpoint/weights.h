#ifndef BRIGADE_CHECKPOINT_WEIGHTS_H_
#define BRIGADE_CHECKPOINT_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::checkpoint {

struct LoadWeightsOptions {
  // The name that a parameter has in the files; empty: its own. Two may have the same.
  std::function<std::string(const std::string& parameter)> name_in_files = nullptr;
  // Gives a parameter that the files do not have its values, or the group's part of them, by its
  // number in the group; empty: that is an error.
  std::function<absl::Status(int parameter, absl::Span<float> values)> initialize_missing = nullptr;
  // Whether the files may have tensors that are no parameters.
  bool allow_unexpected = false;
  int64_t chunk_bytes = int64_t{4} << 20;
};

// Initializes parameters by the weights in `path` (WeightFiles::Open), of float32, float16,
// bfloat16 or float64, which becomes the nearest float; the optimizer state is that of a new run. A
// call of all ranks, those of all groups that have parts of the model (ModelPart); waits. Only the
// first rank of each group reads.
//
// Memory       ZeroOptimizer::InitializeParameters, a chunk, and the headers of the files.
// Errors       On all ranks. Those of WeightFiles. InvalidArgument, with nothing changed, for a
//              part that does not fit (ModelPart), for a tensor of another shape or another type,
//              naming the first, and for names that only the parameters, or only the files have,
//              naming the first few.
absl::Status LoadWeights(const std::string& path, zero::ZeroOptimizer& zero,
                         collectives::Communicator& communicator,
                         const LoadWeightsOptions& options = {},
                         device::SystemCalls& system = device::SystemCalls::Real(),
                         const ModelPart& part = {});

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_WEIGHTS_H_
