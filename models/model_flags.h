#ifndef BRIGADE_MODELS_MODEL_FLAGS_H_
#define BRIGADE_MODELS_MODEL_FLAGS_H_

// What //models:generate and //models:predict take alike: --model, --checkpoint, --adapter, --base,
// --tokenizer, --dtype, --device and --threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/data/tokenizers/tokenizer.h"
#include "brigade/device/context.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/models/config.h"
#include "brigade/models/decoder.h"
#include "brigade/models/lora.h"
#include "brigade/models/parameter_arrays.h"

namespace brigade::models {

// A model as the flags name it.
struct ChosenModel {
  std::string folder = {};
  // Of its weights: the folder, or --checkpoint.
  std::string weights = {};
  // Empty: none.
  std::string adapter = {};
  DecoderConfig config = {};
  std::optional<LoraOptions> lora = {};
  precision::DType dtype = precision::DType::kFloat32;
  std::unique_ptr<device::Context> context = nullptr;
};

// Errors name the flag or the file.
absl::StatusOr<ChosenModel> ModelFromFlags();

// Its weights, and those of its adapter, for a decoder of the choice.
absl::StatusOr<ParameterArrays> LoadChosen(const ChosenModel& chosen, const Decoder& model);

// --tokenizer; without it the model's tokenizer.json, or bytes if the model has 256 tokens.
// InvalidArgument naming both if the tokenizer has more tokens than the model.
absl::StatusOr<std::unique_ptr<data::Tokenizer>> TokenizerFromFlags(const ChosenModel& chosen);

// The tokens that end a text: eos_token_id of generation_config.json, or else of config.json.
// Errors name the file.
absl::StatusOr<std::vector<int32_t>> EndTokens(
    const std::string& folder, device::SystemCalls& system = device::SystemCalls::Real());

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_MODEL_FLAGS_H_
