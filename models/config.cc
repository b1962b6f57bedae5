#include "brigade/models/config.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/attention_math.h"
#include "nlohmann/json.hpp"

namespace brigade::models {
namespace {

using nlohmann::json;

constexpr size_t kMostConfigBytes = size_t{1} << 20;

// Looks keys of an object up; the first error stays, and what follows it is not to be used.
class Keys {
 public:
  explicit Keys(const json& object, std::string path = "") : object_(object), path_(path) {}

  const absl::Status& status() const { return status_; }

  // Null counts as missing, as in Python.
  const json* Find(absl::string_view key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  int64_t Whole(absl::string_view key) {
    const json* const value = Find(key);
    if (value == nullptr) return Fail(key, "is missing"), 0;
    return WholeOf(key, *value);
  }
  int64_t Whole(absl::string_view key, int64_t otherwise) {
    const json* const value = Find(key);
    return value == nullptr ? otherwise : WholeOf(key, *value);
  }
  double Number(absl::string_view key, double otherwise) {
    const json* const value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) return Fail(key, Is(*value, "a number")), otherwise;
    return value->get<double>();
  }
  double Number(absl::string_view key) {
    if (Find(key) == nullptr) Fail(key, "is missing");
    return Number(key, 0);
  }
  bool Flag(absl::string_view key, bool otherwise) {
    const json* const value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) return Fail(key, Is(*value, "true or false")), otherwise;
    return value->get<bool>();
  }
  // One of `choices`.
  std::string Choice(absl::string_view key, const std::vector<std::string>& choices,
                     absl::string_view otherwise) {
    const json* const value = Find(key);
    const std::string is = value == nullptr     ? std::string(otherwise)
                           : value->is_string() ? value->get<std::string>()
                                                : "";
    for (const std::string& choice : choices) {
      if (is == choice) return is;
    }
    Fail(key, absl::StrCat(value == nullptr ? "is missing" : absl::StrCat("is ", Text(*value)),
                           "; it must be ", absl::StrJoin(choices, " or ")));
    return choices.front();
  }
  void MustBeAbsent(absl::string_view key) {
    const json* const value = Find(key);
    if (value != nullptr) Fail(key, absl::StrCat("is ", Text(*value), ", which is not supported"));
  }
  // What else the reference can compute.
  void Must(absl::string_view key, bool value) {
    if (Flag(key, value) != value) {
      Fail(key, absl::StrCat("is ", value ? "false" : "true", ", which is not supported"));
    }
  }

 private:
  static std::string Text(const json& value) {
    return device::Printable(value.dump(-1, ' ', true, json::error_handler_t::replace), 100);
  }
  static std::string Is(const json& value, absl::string_view wanted) {
    return absl::StrCat("is ", Text(value), "; it must be ", wanted);
  }
  int64_t WholeOf(absl::string_view key, const json& value) {
    constexpr int64_t kMost = int64_t{1} << 31;
    if (!value.is_number_integer() || value < 0 || value > kMost) {
      return Fail(key, Is(value, "a whole number from 0 to 2147483648")), 0;
    }
    return value.get<int64_t>();
  }
  void Fail(absl::string_view key, absl::string_view what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat("\"", path_, key, "\" ", what));
  }

  const json& object_;
  const std::string path_;
  absl::Status status_;
};

// From "rope_scaling" or "rope_parameters", where newer files have the base as well.
absl::Status ParseRotary(Keys& keys, DecoderConfig& config) {
  config.rotary_base = keys.Number("rope_theta", config.rotary_base);
  for (const absl::string_view name : {"rope_parameters", "rope_scaling"}) {
    const json* const object = keys.Find(name);
    if (object == nullptr) continue;
    if (!object->is_object()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" must be an object"));
    }
    Keys rope(*object, absl::StrCat(name, "."));
    config.rotary_base = rope.Number("rope_theta", config.rotary_base);
    const absl::string_view key = rope.Find("rope_type") == nullptr ? "type" : "rope_type";
    const std::string type = rope.Choice(key, {"default", "linear", "llama3"}, "default");
    if (type != "default") config.rotary_scaling = nn::RotaryScaling{rope.Number("factor")};
    if (type == "llama3") {
      config.rotary_scaling->low_frequency_factor = rope.Number("low_freq_factor");
      config.rotary_scaling->high_frequency_factor = rope.Number("high_freq_factor");
      config.rotary_scaling->original_positions =
          rope.Number("original_max_position_embeddings", static_cast<double>(config.positions));
    }
    BRIGADE_RETURN_IF_ERROR(rope.status());
  }
  return absl::OkStatus();
}

absl::StatusOr<DecoderConfig> ParseLlama(Keys& keys) {
  DecoderConfig config = {.architecture = Architecture::kLlama,
                          .vocabulary = keys.Whole("vocab_size"),
                          .layers = keys.Whole("num_hidden_layers"),
                          .width = keys.Whole("hidden_size"),
                          .heads = keys.Whole("num_attention_heads")};
  config.key_value_heads = keys.Whole("num_key_value_heads", config.heads);
  config.head_width = keys.Whole("head_dim", config.heads == 0 ? 0 : config.width / config.heads);
  config.inner = keys.Whole("intermediate_size");
  config.positions = keys.Whole("max_position_embeddings");
  config.norm_epsilon = keys.Number("rms_norm_eps", 1e-6);
  config.tied = keys.Flag("tie_word_embeddings", false);
  config.attention_bias = keys.Flag("attention_bias", false);
  config.mlp_bias = keys.Flag("mlp_bias", false);
  keys.Choice("hidden_act", {"silu", "swish"}, "silu");
  if (keys.Flag("use_sliding_window", true)) keys.MustBeAbsent("sliding_window");
  BRIGADE_RETURN_IF_ERROR(ParseRotary(keys, config));
  return config;
}

absl::StatusOr<DecoderConfig> ParseGpt2(Keys& keys) {
  DecoderConfig config = {.architecture = Architecture::kGpt2,
                          .vocabulary = keys.Whole("vocab_size"),
                          .layers = keys.Whole("n_layer"),
                          .width = keys.Whole("n_embd"),
                          .heads = keys.Whole("n_head")};
  config.key_value_heads = config.heads;
  config.head_width = config.heads == 0 ? 0 : config.width / config.heads;
  config.inner = keys.Whole("n_inner", 4 * config.width);
  config.positions = keys.Whole("n_positions");
  config.norm_epsilon = keys.Number("layer_norm_epsilon", 1e-5);
  config.tied = keys.Flag("tie_word_embeddings", true);
  keys.Choice("activation_function", {"gelu_new", "gelu_pytorch_tanh"}, "gelu_new");
  keys.Must("scale_attn_weights", true);
  keys.Must("scale_attn_by_inverse_layer_idx", false);
  keys.Must("add_cross_attention", false);
  return config;
}

absl::Status CheckSize(absl::string_view key, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", key, "\" is ", value, "; it must be 1 to ", most));
}

absl::Status CheckPositive(absl::string_view key, double value) {
  if (value > 0 && !std::isinf(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", key, "\" is ", value, "; it must be positive and finite"));
}

}  // namespace

absl::string_view NameOf(Architecture architecture) {
  return architecture == Architecture::kGpt2 ? "gpt2" : "llama";
}

absl::Status Validate(const DecoderConfig& config) {
  const bool llama = config.architecture == Architecture::kLlama;
  const auto key = [&](absl::string_view of_llama, absl::string_view of_gpt2) {
    return llama ? of_llama : of_gpt2;
  };
  constexpr int64_t kMostWidth = int64_t{1} << 20;
  BRIGADE_RETURN_IF_ERROR(CheckSize("vocab_size", config.vocabulary, int64_t{1} << 30));
  BRIGADE_RETURN_IF_ERROR(CheckSize(key("num_hidden_layers", "n_layer"), config.layers, 10000));
  BRIGADE_RETURN_IF_ERROR(CheckSize(key("hidden_size", "n_embd"), config.width, kMostWidth));
  BRIGADE_RETURN_IF_ERROR(CheckSize(key("num_attention_heads", "n_head"), config.heads, 1 << 16));
  BRIGADE_RETURN_IF_ERROR(CheckSize(key("intermediate_size", "n_inner"), config.inner, kMostWidth));
  BRIGADE_RETURN_IF_ERROR(
      CheckSize(key("max_position_embeddings", "n_positions"), config.positions, int64_t{1} << 30));
  BRIGADE_RETURN_IF_ERROR(
      CheckSize(key("head_dim", "n_embd / n_head"), config.head_width, nn::kMaxHeadWidth));
  BRIGADE_RETURN_IF_ERROR(
      CheckPositive(key("rms_norm_eps", "layer_norm_epsilon"), config.norm_epsilon));
  if (!llama) {
    if (config.head_width * config.heads == config.width) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "\"n_embd\" is ", config.width, "; it must be a multiple of \"n_head\", ", config.heads));
  }
  if (config.head_width % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("\"head_dim\" is ", config.head_width,
                                                   "; it must be even to be rotated in halves"));
  }
  if (config.key_value_heads < 1 || config.heads % config.key_value_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"num_key_value_heads\" is ", config.key_value_heads,
                     "; it must divide \"num_attention_heads\", ", config.heads));
  }
  return CheckPositive("rope_theta", config.rotary_base);
}

absl::StatusOr<DecoderConfig> ParseConfig(absl::string_view text) {
  BRIGADE_ASSIGN_OR_RETURN(const json document,
                           checkpoint::ParseJson(text, {.bytes = kMostConfigBytes}));
  if (!document.is_object()) return absl::InvalidArgumentError("the text must be an object");
  Keys keys(document);
  const std::string type = keys.Choice("model_type", {"gpt2", "llama"}, "");
  BRIGADE_RETURN_IF_ERROR(keys.status());
  absl::StatusOr<DecoderConfig> config = type == "gpt2" ? ParseGpt2(keys) : ParseLlama(keys);
  BRIGADE_RETURN_IF_ERROR(keys.status());
  BRIGADE_RETURN_IF_ERROR(config.status());
  BRIGADE_RETURN_IF_ERROR(Validate(*config));
  return config;
}

absl::StatusOr<DecoderConfig> ReadConfig(const std::string& folder, device::SystemCalls& system) {
  const std::string path = absl::StrCat(folder, "/", kConfigName);
  BRIGADE_ASSIGN_OR_RETURN(const auto file, checkpoint::RandomAccessFile::Open(system, path));
  const auto named = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint::PrintablePath(path), ": ", what));
  };
  if (file.size() > static_cast<int64_t>(kMostConfigBytes)) {
    return named(absl::StrCat("it has ", file.size(), " bytes, too many"));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  BRIGADE_RETURN_IF_ERROR(file.Read(text.data(), file.size(), 0));
  absl::StatusOr<DecoderConfig> config = ParseConfig(text);
  if (!config.ok()) return named(config.status().message());
  return config;
}

std::string ConfigJson(const DecoderConfig& config) {
  json document = {{"model_type", NameOf(config.architecture)},
                   {"vocab_size", config.vocabulary},
                   {"tie_word_embeddings", config.tied}};
  if (config.architecture == Architecture::kGpt2) {
    document.update(json{{"architectures", json::array({"GPT2LMHeadModel"})},
                         {"n_layer", config.layers},
                         {"n_embd", config.width},
                         {"n_head", config.heads},
                         {"n_inner", config.inner},
                         {"n_positions", config.positions},
                         {"layer_norm_epsilon", config.norm_epsilon},
                         {"activation_function", "gelu_new"}});
    return document.dump(2) + "\n";
  }
  document.update(json{{"architectures", json::array({"LlamaForCausalLM"})},
                       {"num_hidden_layers", config.layers},
                       {"hidden_size", config.width},
                       {"num_attention_heads", config.heads},
                       {"num_key_value_heads", config.key_value_heads},
                       {"head_dim", config.head_width},
                       {"intermediate_size", config.inner},
                       {"max_position_embeddings", config.positions},
                       {"rms_norm_eps", config.norm_epsilon},
                       {"rope_theta", config.rotary_base},
                       {"attention_bias", config.attention_bias},
                       {"mlp_bias", config.mlp_bias},
                       {"hidden_act", "silu"}});
  if (config.rotary_scaling.has_value()) {
    const nn::RotaryScaling& scaling = *config.rotary_scaling;
    json rope = {{"rope_type", "linear"}, {"factor", scaling.factor}};
    if (scaling.high_frequency_factor != 0) {
      rope["rope_type"] = "llama3";
      rope["low_freq_factor"] = scaling.low_frequency_factor;
      rope["high_freq_factor"] = scaling.high_frequency_factor;
      rope["original_max_position_embeddings"] = static_cast<int64_t>(scaling.original_positions);
    }
    document["rope_scaling"] = std::move(rope);
  }
  return document.dump(2) + "\n";
}

}  // namespace brigade::models
