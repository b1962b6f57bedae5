#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/adapter_files.h"
#include "nlohmann/json.hpp"

namespace brigade::models {
namespace {

using nlohmann::json;

constexpr int64_t kMostConfigBytes = int64_t{1} << 20;

absl::Status Error(absl::string_view key, const json& value, absl::string_view what) {
  const std::string text =
      device::Printable(value.dump(-1, ' ', true, json::error_handler_t::replace), 100);
  return absl::InvalidArgumentError(
      absl::StrCat(device::Quoted(key, 100), " is ", text, "; ", what));
}

// Says nothing: null, false, nothing in it.
bool IsEmpty(const json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_array() || value.is_object() || value.is_string()) && value.empty());
}

// Of other features, of training alone, or of no meaning here.
const std::set<std::string>& Unread() {
  static const auto& keys = *new std::set<std::string>{
      "auto_mapping",      "base_model_name_or_path",
      "corda_config",      "eva_config",
      "fan_in_fan_out",    "inference_mode",
      "layers_pattern",    "lora_ga_config",
      "megatron_core",     "peft_version",
      "qalora_group_size", "revision",
      "runtime_config",    "task_type",
  };
  return keys;
}

absl::Status ReadTargets(const json& value, LoraOptions& options) {
  constexpr char kKey[] = "target_modules";
  constexpr char kMust[] = "it must be a string or a list of strings";
  if (value.is_string()) {
    options.pattern = value.get<std::string>();
    if (options.pattern.empty()) return Error(kKey, value, "it must not be empty");
    return absl::OkStatus();
  }
  if (!value.is_array()) return Error(kKey, value, kMust);
  for (const json& each : value) {
    if (!each.is_string() || each.empty()) return Error(kKey, value, kMust);
    options.targets.push_back(each.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadKey(const std::string& key, const json& value, LoraOptions& options) {
  if (key == "r") {
    if (!value.is_number_integer() || value < 1 || value > int64_t{1} << 20) {
      return Error(key, value, "it must be a whole number of at least 1");
    }
    options.rank = value.get<int64_t>();
  } else if (key == "lora_alpha" || key == "lora_dropout") {
    if (!value.is_number()) return Error(key, value, "it must be a number");
    (key == "lora_alpha" ? options.alpha : options.dropout) = value.get<double>();
  } else if (key == "use_rslora") {
    if (!value.is_boolean()) return Error(key, value, "it must be true or false");
    options.rank_stabilized = value.get<bool>();
  } else if (key == "peft_type") {
    if (value != "LORA") return Error(key, value, "it must be LORA");
  } else if (key == "bias") {
    if (value != "none") return Error(key, value, "only none is supported");
  } else if (key == "init_lora_weights") {
    // Others change the base.
    if (!value.is_boolean() && value != "gaussian" && value != "eva") {
      return Error(key, value, "true, false, gaussian and eva are supported");
    }
  } else if (key == "target_modules") {
    return value.is_null() ? absl::OkStatus() : ReadTargets(value, options);
  } else if (Unread().count(key) == 0 && !IsEmpty(value)) {
    return Error(key, value, "which is not supported");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoraOptions> ParseAdapterConfig(absl::string_view text) {
  BRIGADE_ASSIGN_OR_RETURN(const json object, checkpoint::ParseJson(text));
  if (!object.is_object()) return absl::InvalidArgumentError("it is no object");
  for (const char* const key : {"peft_type", "r", "lora_alpha"}) {
    if (!object.contains(key)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is missing"));
    }
  }
  LoraOptions options;
  for (const auto& [key, value] : object.items()) {
    BRIGADE_RETURN_IF_ERROR(ReadKey(key, value, options));
  }
  BRIGADE_RETURN_IF_ERROR(Validate(options));
  return options;
}

absl::StatusOr<LoraOptions> ReadAdapterConfig(const std::string& folder,
                                              device::SystemCalls& system) {
  const std::string path = absl::StrCat(folder, "/", kAdapterConfigName);
  const auto read = [&]() -> absl::StatusOr<LoraOptions> {
    BRIGADE_ASSIGN_OR_RETURN(const auto file, checkpoint::RandomAccessFile::Open(system, path));
    if (file.size() > kMostConfigBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(checkpoint::PrintablePath(path), ": ", file.size(), " bytes are too many"));
    }
    std::string text(static_cast<size_t>(file.size()), '\0');
    BRIGADE_RETURN_IF_ERROR(file.Read(text.data(), file.size(), 0));
    auto options = ParseAdapterConfig(text);
    if (options.ok()) return options;
    return absl::Status(options.status().code(), absl::StrCat(checkpoint::PrintablePath(path), ": ",
                                                              options.status().message()));
  };
  return read();
}

std::string AdapterConfigJson(const Decoder& model, absl::string_view base) {
  const LoraOptions& options = *model.options().lora;
  json targets;
  const bool all_linear = options.pattern == "all-linear" ||
                          (options.targets.size() == 1 && options.targets.front() == "all-linear");
  if (!options.pattern.empty() && !all_linear) {
    targets = options.pattern;
  } else if (!options.targets.empty() && !all_linear) {
    targets = options.targets;
  } else {
    // As PEFT does, each by its name.
    targets = json::array();
    for (const LoraModule& module : model.modules()) targets.push_back(module.name);
  }
  json object = {
      {"base_model_name_or_path", base.empty() ? json() : json(std::string(base))},
      {"bias", "none"},
      {"fan_in_fan_out", model.config().architecture == Architecture::kGpt2},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"lora_dropout", options.dropout},
      {"modules_to_save", json()},
      {"peft_type", "LORA"},
      {"r", options.rank},
      {"target_modules", targets},
      {"task_type", "CAUSAL_LM"},
      {"use_rslora", options.rank_stabilized},
  };
  // PEFT has it as a whole number.
  constexpr double kMostWhole = 0x1p53;
  if (std::abs(options.alpha) < kMostWhole && options.alpha == std::trunc(options.alpha)) {
    object["lora_alpha"] = static_cast<int64_t>(options.alpha);
  } else {
    object["lora_alpha"] = options.alpha;
  }
  return object.dump(2, ' ', true, json::error_handler_t::replace) + "\n";
}

}  // namespace brigade::models
