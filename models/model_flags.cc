#include "brigade/models/model_flags.h"

#include <cstddef>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/data/open.h"
#include "brigade/device/command_line.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/adapter_files.h"
#include "brigade/models/weights.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(std::string, model, "",
          "Folder with config.json and model.safetensors, or its index and files, as Hugging Face "
          "has them: of GPT-2 or Llama.");
ABSL_FLAG(std::string, checkpoint, "",
          "What a training of the model has saved, of any stage and grid: the folder, whose newest "
          "checkpoint is taken, or one checkpoint. Its weights are taken instead of --model's.");
ABSL_FLAG(std::string, adapter, "",
          "Folder with adapter_config.json and adapter_model.safetensors, as PEFT has them.");
ABSL_FLAG(
    std::string, base, "model",
    "model or int8: how the weights below an adapter lie in memory, in --dtype or as blocks of "
    "int8.");
ABSL_FLAG(std::string, tokenizer, "",
          "\"byte\", or a tokenizer.json of a byte-level BPE; else the model's tokenizer.json, or "
          "bytes if the model has 256 tokens.");
ABSL_FLAG(std::string, dtype, "fp32", "fp32, fp16 or bf16: of weights and activations.");
ABSL_FLAG(std::string, device, "cpu", "cpu or cuda.");
ABSL_FLAG(int, threads, 0, "Of the CPU; 0: one for each core.");

namespace brigade::models {
namespace {

using nlohmann::json;

constexpr int64_t kMostConfigBytes = int64_t{1} << 20;
constexpr char kTokenizerName[] = "tokenizer.json";

// Nothing if there is no such file.
absl::StatusOr<std::optional<json>> ReadObject(const std::string& path,
                                               device::SystemCalls& system) {
  const auto file = checkpoint::RandomAccessFile::Open(system, path);
  if (file.status().code() == absl::StatusCode::kNotFound) return std::nullopt;
  BRIGADE_RETURN_IF_ERROR(file.status());
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint::PrintablePath(path), ": ", what));
  };
  if (file->size() > kMostConfigBytes) return wrong("it is too long");
  std::string text(static_cast<size_t>(file->size()), '\0');
  BRIGADE_RETURN_IF_ERROR(file->Read(text.data(), file->size(), 0));
  const auto object = checkpoint::ParseJson(text);
  if (!object.ok()) return wrong(object.status().message());
  if (!object->is_object()) return wrong("it is no object");
  return *object;
}

absl::StatusOr<std::vector<int32_t>> TokensOf(const json& value) {
  constexpr char kMust[] = "\"eos_token_id\" must be a token or a list of tokens";
  std::vector<int32_t> tokens;
  for (const json& each : value.is_array() ? value : json::array({value})) {
    if (!each.is_number_integer() || each < 0 || each > int64_t{0x7fffffff}) {
      return absl::InvalidArgumentError(kMust);
    }
    tokens.push_back(each.get<int32_t>());
  }
  return tokens;
}

}  // namespace

absl::StatusOr<ChosenModel> ModelFromFlags() {
  ChosenModel chosen;
  const auto dtype = precision::ParseTrainingFormat(absl::GetFlag(FLAGS_dtype));
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("--dtype is ",
                                                   device::Quoted(absl::GetFlag(FLAGS_dtype), 40),
                                                   "; it must be fp32, fp16 or bf16"));
  }
  chosen.dtype = *dtype;
  const std::string device_name = absl::GetFlag(FLAGS_device);
  if (device_name != "cpu" && device_name != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device is ", device::Quoted(device_name, 40), "; it must be cpu or cuda"));
  }
  if (absl::GetFlag(FLAGS_threads) < 0) {
    return absl::InvalidArgumentError("--threads must be at least 0");
  }
  const std::string base = absl::GetFlag(FLAGS_base);
  if (base != "model" && base != "int8") {
    return absl::InvalidArgumentError(
        absl::StrCat("--base is ", device::Quoted(base, 40), "; it must be model or int8"));
  }
  if (absl::GetFlag(FLAGS_model).empty()) {
    return absl::InvalidArgumentError("--model is missing");
  }
  chosen.folder = device::FromUsersFolder(absl::GetFlag(FLAGS_model));
  const std::string checkpoint = absl::GetFlag(FLAGS_checkpoint);
  chosen.weights = checkpoint.empty() ? chosen.folder : device::FromUsersFolder(checkpoint);
  BRIGADE_ASSIGN_OR_RETURN(chosen.config, ReadConfig(chosen.folder));
  if (!absl::GetFlag(FLAGS_adapter).empty()) {
    chosen.adapter = device::FromUsersFolder(absl::GetFlag(FLAGS_adapter));
    BRIGADE_ASSIGN_OR_RETURN(chosen.lora, ReadAdapterConfig(chosen.adapter));
    if (base == "int8") chosen.lora->base = BaseFormat::kInt8Blocks;
  } else if (base == "int8") {
    return absl::InvalidArgumentError("--base=int8 is for models with an --adapter");
  }
  device::ContextOptions options;
  if (device_name == "cuda") options.device = device::Cuda();
  options.compute_threads = absl::GetFlag(FLAGS_threads);
  BRIGADE_ASSIGN_OR_RETURN(chosen.context, device::Context::Create(options));
  return chosen;
}

absl::StatusOr<ParameterArrays> LoadChosen(const ChosenModel& chosen, const Decoder& model) {
  BRIGADE_ASSIGN_OR_RETURN(
      auto weights,
      ParameterArrays::Create(model.spec(), {.dtype = chosen.dtype}, *chosen.context));
  BRIGADE_RETURN_IF_ERROR(LoadWeights(chosen.weights, model, weights, *chosen.context,
                                      device::SystemCalls::Real(), {.folder = chosen.adapter}));
  return weights;
}

absl::StatusOr<std::unique_ptr<data::Tokenizer>> TokenizerFromFlags(const ChosenModel& chosen) {
  std::string named = absl::GetFlag(FLAGS_tokenizer);
  if (named.empty()) {
    named = absl::StrCat(chosen.folder, "/", kTokenizerName);
    const auto file = checkpoint::RandomAccessFile::Open(device::SystemCalls::Real(), named);
    if (file.status().code() == absl::StatusCode::kNotFound) {
      if (chosen.config.vocabulary != 256) {
        return absl::InvalidArgumentError(absl::StrCat("the model has ", chosen.config.vocabulary,
                                                       " tokens and no ", kTokenizerName,
                                                       ": give one with --tokenizer"));
      }
      named = "byte";
    }
  } else if (named != "byte") {
    named = device::FromUsersFolder(named);
  }
  BRIGADE_ASSIGN_OR_RETURN(auto tokenizer, data::OpenTokenizer(named));
  if (tokenizer->vocabulary() > chosen.config.vocabulary) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer ", device::Quoted(named, 200), " has ", tokenizer->vocabulary(),
                     " tokens, the model ", chosen.config.vocabulary));
  }
  return tokenizer;
}

absl::StatusOr<std::vector<int32_t>> EndTokens(const std::string& folder,
                                               device::SystemCalls& system) {
  for (const char* const name : {"generation_config.json", kConfigName}) {
    const std::string path = absl::StrCat(folder, "/", name);
    BRIGADE_ASSIGN_OR_RETURN(const auto object, ReadObject(path, system));
    if (!object.has_value()) continue;
    const auto found = object->find("eos_token_id");
    if (found == object->end() || found->is_null()) continue;
    auto tokens = TokensOf(*found);
    if (tokens.ok()) return tokens;
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint::PrintablePath(path), ": ", tokens.status().message()));
  }
  return std::vector<int32_t>();
}

}  // namespace brigade::models
