#ifndef BRIGADE_MODELS_GENERATOR_H_
#define BRIGADE_MODELS_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/models/decoder.h"
#include "brigade/models/sampling.h"
#include "brigade/zero/step.h"

namespace brigade::models {

struct GenerateOptions {
  SamplingOptions sampling = {};
  // After the prompt; fewer after a stop token.
  int64_t new_tokens = 100;
  // After one of these nothing comes; it is the last one.
  std::vector<int32_t> stop_tokens = {};
};

// Writes a text on, token by token, with the keys and values of what is there already kept.
//
// Memory       Decoder::MemoryOf, for one sample of `positions` at a time in a cache of `capacity`;
//              the ids on the device, and ids and a row of logits on the host.
// Determinism  The same tokens for a model, a prompt, options and a device.
class Generator {
 public:
  struct Options {
    precision::DType dtype = precision::DType::kBFloat16;
    // Of prompt and answer together; 0: all that the model has.
    int64_t capacity = 0;
    // How many of the prompt are read at a time.
    int64_t positions = 64;
    // The model has adapters.
    std::optional<LoraOptions> lora = std::nullopt;
  };

  // Errors of Decoder::Create.
  static absl::StatusOr<Generator> Create(const DecoderConfig& config, const Options& options,
                                          device::Context& context);

  const Decoder& model() const { return *model_; }

  // The tokens behind the prompt, each given to `each` (unless empty) when it is there, which ends
  // the text by returning false. `source` has the weights, of the model's spec. Waits.
  //
  // Errors       InvalidArgument for a prompt of no token, or one that is none of the vocabulary,
  //              or is too long with the new tokens, and for the options; those of SampleToken.
  absl::StatusOr<std::vector<int32_t>> Generate(absl::Span<const int32_t> prompt,
                                                const GenerateOptions& options,
                                                zero::ParameterSource& source,
                                                const std::function<bool(int32_t)>& each = nullptr);

 private:
  Generator() = default;

  // Logits behind positions [first, first + ids.size()), into logits_.
  absl::Status Read(absl::Span<const int32_t> ids, int64_t first, zero::ParameterSource& source);

  std::unique_ptr<Decoder> model_;
  std::unique_ptr<device::Stream> stream_;
  device::Buffer ids_, host_ids_, host_logits_;
  std::vector<float> logits_;
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_GENERATOR_H_
