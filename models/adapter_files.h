#ifndef BRIGADE_MODELS_ADAPTER_FILES_H_
#define BRIGADE_MODELS_ADAPTER_FILES_H_

// Adapters in PEFT's files: a folder with adapter_config.json and adapter_model.safetensors.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/models/decoder.h"
#include "brigade/models/lora.h"
#include "brigade/models/parameter_arrays.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::models {

inline constexpr char kAdapterConfigName[] = "adapter_config.json";
inline constexpr char kAdapterWeightsName[] = "adapter_model.safetensors";

// What DecoderOptions::lora is to be for such an adapter; the base's format and the seed of dropout
// are no part of it.
//
// Errors       InvalidArgument naming the key and its value: what is missing or of another type,
//              and what changes what is computed and is not supported (DoRA, biases, ranks or
//              alphas by pattern, modules that are trained as a whole, layers by number, an
//              initialisation that changes the base, a key that is not known and says something).
absl::StatusOr<LoraOptions> ParseAdapterConfig(absl::string_view json);
// Of the file in a folder. Errors name it.
absl::StatusOr<LoraOptions> ReadAdapterConfig(
    const std::string& folder, device::SystemCalls& system = device::SystemCalls::Real());

// From which ParseAdapterConfig, and PEFT, read the same; `base` is where the base comes from, for
// PEFT's AutoPeftModel.
std::string AdapterConfigJson(const Decoder& model, absl::string_view base);

// The adapters of a model in a folder, opened.
//
// Errors       Open: InvalidArgument for a model without adapters, or whose rank, scale or layers
//              are others; naming the first tensor that is missing, is no adapter's, or of another
//              shape or type. Those of WeightFiles and ReadAdapterConfig.
class AdapterFiles {
 public:
  static absl::StatusOr<AdapterFiles> Open(
      const std::string& folder, const Decoder& model,
      device::SystemCalls& system = device::SystemCalls::Real());

  // Whether the files have values of the parameter: of adapters, and of a table or a head of the
  // base that PEFT has saved beside its adapter.
  bool Has(int parameter) const { return tensors_[static_cast<size_t>(parameter)] != nullptr; }
  // The values as the parameter of the spec has them.
  absl::Status Read(int parameter, absl::Span<float> values) const;

 private:
  AdapterFiles(checkpoint::WeightFiles files, const Decoder& model);
  absl::Status Match(const Decoder& model);

  std::unique_ptr<checkpoint::WeightFiles> files_;
  // By the parameter's number.
  std::vector<const checkpoint::WeightFiles::Tensor*> tensors_;
  // Rows of the tensor as it is in the file, if it is transposed; else 0.
  std::vector<int64_t> transposed_rows_;
};

// Reads the adapters, and what else is beside them, into arrays of the model's spec. Waits.
absl::Status LoadAdapter(const std::string& folder, const Decoder& model, ParameterArrays& to,
                         device::Context& context,
                         device::SystemCalls& system = device::SystemCalls::Real());

// Makes the folder `path` with the adapters in float32, which PEFT's from_pretrained reads. It has
// its name when it is on the disk as a whole. Waits.
//
// Memory       The adapters in float32, on the host.
// Errors       AlreadyExists if something has the name; InvalidArgument for a model without
//              adapters. After an error there is nothing new.
absl::Status SaveAdapter(const std::string& path, const Decoder& model, const ParameterArrays& from,
                         device::Context& context, absl::string_view base = "",
                         device::SystemCalls& system = device::SystemCalls::Real());
// The masters of a training of any stage and number of ranks: a call of all ranks, of which the
// first writes; errors are those of all. Of a pipeline, and of tensor
// ranks, each rank has room, for a moment, for the adapters of the largest part once for each rank.
absl::Status SaveAdapter(const std::string& path, const Decoder& model, zero::ZeroOptimizer& zero,
                         collectives::Communicator& communicator, absl::string_view base = "",
                         device::SystemCalls& system = device::SystemCalls::Real());

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_ADAPTER_FILES_H_
