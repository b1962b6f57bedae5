// Writes a text on: bazel run //models:generate -- --weights=FOLDER --prompt=TEXT

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/device/command_line.h"
#include "brigade/device/context.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/config.h"
#include "brigade/models/generator.h"
#include "brigade/models/parameter_arrays.h"
#include "brigade/models/weights.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(std::string, weights, "",
          "Folder with config.json and model.safetensors, or its index and files, as Hugging Face "
          "has them: of GPT-2 or Llama.");
ABSL_FLAG(std::string, prompt, "",
          "Text to write on, of a model whose 256 tokens are bytes; else give --ids.");
ABSL_FLAG(std::string, ids, "", "Tokens to write on, by their numbers: 15496,11,995");
ABSL_FLAG(int64_t, new_tokens, 100, "How many tokens to write.");
ABSL_FLAG(double, temperature, 1, "What logits are divided by; 0: the most probable token always.");
ABSL_FLAG(int64_t, top_k, 0, "Only the k most probable tokens come; 0: all.");
ABSL_FLAG(double, top_p, 1, "Only the most probable tokens come that have this share together.");
ABSL_FLAG(uint64_t, seed, 0, "The same seed gives the same tokens.");
ABSL_FLAG(std::string, stop, "", "Tokens after which nothing comes: 50256");
ABSL_FLAG(std::string, dtype, "fp32", "Type of weights and activations: fp32, fp16 or bf16.");
ABSL_FLAG(std::string, device, "cpu", "cpu or cuda.");
ABSL_FLAG(int, threads, 0, "Of the CPU; 0: one for each core.");

namespace brigade::models {
namespace {

absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view flag, absl::string_view text) {
  std::vector<int32_t> ids;
  if (text.empty()) return ids;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int32_t id;
    if (!absl::SimpleAtoi(word, &id) || id < 0) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", device::Quoted(word, 40),
                                                     " is no token; give numbers like 15,11,995"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ParsePrompt(const DecoderConfig& config) {
  const std::string prompt = absl::GetFlag(FLAGS_prompt), ids = absl::GetFlag(FLAGS_ids);
  if (prompt.empty() == ids.empty()) {
    return absl::InvalidArgumentError("give one of --prompt and --ids");
  }
  if (!ids.empty()) return ParseIds("ids", ids);
  if (config.vocabulary != 256) {
    return absl::InvalidArgumentError(absl::StrCat("--prompt is for models of bytes; this one has ",
                                                   config.vocabulary,
                                                   " tokens: give their numbers with --ids"));
  }
  std::vector<int32_t> bytes;
  for (const char byte : prompt) bytes.push_back(static_cast<uint8_t>(byte));
  return bytes;
}

absl::Status Run() {
  const std::string folder = device::FromUsersFolder(absl::GetFlag(FLAGS_weights));
  if (folder.empty()) return absl::InvalidArgumentError("--weights is missing");
  const auto dtype = precision::ParseTrainingFormat(absl::GetFlag(FLAGS_dtype));
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dtype=", absl::GetFlag(FLAGS_dtype), "; it must be fp32, fp16 or bf16"));
  }
  const std::string device_name = absl::GetFlag(FLAGS_device);
  if (device_name != "cpu" && device_name != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", device_name, "; it must be cpu or cuda"));
  }
  if (absl::GetFlag(FLAGS_threads) < 0) {
    return absl::InvalidArgumentError("--threads must be at least 0");
  }
  BRIGADE_ASSIGN_OR_RETURN(const DecoderConfig config, ReadConfig(folder));
  BRIGADE_ASSIGN_OR_RETURN(const auto prompt, ParsePrompt(config));
  GenerateOptions options;
  options.sampling = {absl::GetFlag(FLAGS_temperature), absl::GetFlag(FLAGS_top_k),
                      absl::GetFlag(FLAGS_top_p), absl::GetFlag(FLAGS_seed)};
  options.new_tokens = absl::GetFlag(FLAGS_new_tokens);
  BRIGADE_ASSIGN_OR_RETURN(options.stop_tokens, ParseIds("stop", absl::GetFlag(FLAGS_stop)));

  device::ContextOptions of_context;
  if (device_name == "cuda") of_context.device = device::Cuda();
  of_context.compute_threads = absl::GetFlag(FLAGS_threads);
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create(of_context));
  const int64_t wanted =
      static_cast<int64_t>(prompt.size()) + std::max<int64_t>(options.new_tokens, 1) - 1;
  if (wanted > config.positions) {
    return absl::InvalidArgumentError(absl::StrCat(prompt.size(), " tokens and ",
                                                   options.new_tokens, " new ones; the model has ",
                                                   config.positions, " positions"));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      auto generator, Generator::Create(config, {.dtype = *dtype, .capacity = wanted}, *context));
  BRIGADE_ASSIGN_OR_RETURN(
      auto weights, ParameterArrays::Create(generator.model().spec(), {.dtype = *dtype}, *context));
  BRIGADE_RETURN_IF_ERROR(LoadWeights(folder, generator.model(), weights, *context));
  const bool bytes = absl::GetFlag(FLAGS_ids).empty();
  const auto print = [&](int32_t token) {
    if (bytes) {
      std::fputc(token, stdout);
    } else {
      std::printf("%d\n", token);
    }
    return std::fflush(stdout) == 0;
  };
  BRIGADE_RETURN_IF_ERROR(generator.Generate(prompt, options, weights, print).status());
  if (bytes) std::printf("\n");
  return std::fflush(stdout) == 0 ? absl::OkStatus() : absl::DataLossError("cannot write the text");
}

}  // namespace
}  // namespace brigade::models

int main(int argc, char** argv) {
  return brigade::device::RunProgram(argc, argv, "Writes a text on by a language model.",
                                     brigade::models::Run);
}
