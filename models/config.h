#ifndef BRIGADE_MODELS_CONFIG_H_
#define BRIGADE_MODELS_CONFIG_H_

// The sizes of a model, as Hugging Face's config.json has them.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/nn/rotary.h"

namespace brigade::models {

inline constexpr char kConfigName[] = "config.json";

enum class Architecture : uint8_t { kGpt2, kLlama };

// "gpt2", "llama".
absl::string_view NameOf(Architecture architecture);

struct DecoderConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t vocabulary = 0;
  int64_t layers = 0;
  // Of the residual stream.
  int64_t width = 0;
  // Of queries; each group of heads / key_value_heads has one head of keys and values. GPT-2 has as
  // many of both.
  int64_t heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_width = 0;
  // Inside the MLP.
  int64_t inner = 0;
  // The longest text; of GPT-2 the rows of its table.
  int64_t positions = 0;
  double norm_epsilon = 1e-5;
  // Whether the head uses the weights of the embedding.
  bool tied = false;

  // Of Llama alone.
  double rotary_base = 10000;
  std::optional<nn::RotaryScaling> rotary_scaling = std::nullopt;
  bool attention_bias = false;
  bool mlp_bias = false;

  int64_t group() const { return heads / key_value_heads; }
  // Of the queries of a row, and of its queries, keys and values.
  int64_t attention_width() const { return heads * head_width; }
  int64_t projected_width() const { return (heads + 2 * key_value_heads) * head_width; }
};

// InvalidArgument naming the key of config.json and its value.
absl::Status Validate(const DecoderConfig& config);

// Keys that do not change what is computed are not looked at; dropout's neither: passes have none.
//
// Errors       InvalidArgument naming the key and its value: what is missing or of another type,
//              what Validate refuses, and what a model here does not compute (another activation,
//              another kind of rope scaling, sliding windows).
absl::StatusOr<DecoderConfig> ParseConfig(absl::string_view json);

// Of the file in a folder. Errors name it.
absl::StatusOr<DecoderConfig> ReadConfig(const std::string& folder,
                                         device::SystemCalls& system = device::SystemCalls::Real());

// From which ParseConfig, and Hugging Face's AutoConfig, read the same.
std::string ConfigJson(const DecoderConfig& config);

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_CONFIG_H_
