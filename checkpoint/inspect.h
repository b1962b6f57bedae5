#ifndef BRIGADE_CHECKPOINT_INSPECT_H_
#define BRIGADE_CHECKPOINT_INSPECT_H_

#include <string>

#include "absl/status/status.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::checkpoint {

// Appends to `text` what is in `path`, without reading the data of tensors: a checkpoint; a folder
// of checkpoints, with a line each; or weights of any tool (weight_files.h).
//
// Errors       Those of CheckpointReader and WeightFiles. In a folder of checkpoints those that can
//              be read are listed; the error is that of the first that cannot.
absl::Status Inspect(const std::string& path, std::string& text,
                     device::SystemCalls& system = device::SystemCalls::Real());

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_INSPECT_H_
