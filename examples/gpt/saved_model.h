#ifndef BRIGADE_EXAMPLES_GPT_SAVED_MODEL_H_
#define BRIGADE_EXAMPLES_GPT_SAVED_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/context.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/models/config.h"
#include "brigade/models/decoder.h"
#include "brigade/models/parameter_arrays.h"
#include "brigade/precision/dtype.h"

namespace brigade::gpt {

// A trained model of this example in files, as a GPT-2 of models/, which generates: the same passes
// over the same numbers, whose matrices lie the other way round.
//
// Any stage, grid and number of ranks saves the same files (docs/checkpoints.md).
class SavedModel {
 public:
  // `path`: a checkpoint, in place or in pieces; a folder of checkpoints, of which it is the
  // newest; or weights that //checkpoint:export has written, which say nothing of `heads`. 0: as
  // the checkpoint says.
  //
  // Errors       Those of CheckpointReader and WeightFiles; InvalidArgument naming what a model of
  //              this example does not have, or has of another shape, and for heads that no file
  //              and no caller says, or both otherwise.
  static absl::StatusOr<SavedModel> Open(const std::string& path, int64_t heads = 0,
                                         device::SystemCalls& system = device::SystemCalls::Real());

  // Layers, heads, width and context.
  const ModelOptions& options() const { return options_; }
  models::DecoderConfig config() const;

  // Fills arrays of a decoder of this config. Waits.
  absl::Status Load(const models::Decoder& model, models::ParameterArrays& to,
                    device::Context& context) const;

 private:
  struct Tensor {
    std::vector<uint64_t> shape = {};
    precision::DType dtype = precision::DType::kFloat32;
    // All of its bytes.
    std::function<absl::Status(absl::Span<char> bytes)> read;
  };

  SavedModel() = default;
  absl::Status OpenCheckpoint(const std::string& folder, device::SystemCalls& system);
  absl::Status OpenWeights(const std::string& path, device::SystemCalls& system);
  // What shapes say of options_; whether all tensors are there.
  absl::Status Measure();
  absl::Status Check() const;

  std::string path_;
  ModelOptions options_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_SAVED_MODEL_H_
