// Writes a text on by a model that this example has trained:
// bazel run //examples/gpt:generate -- --checkpoint=run --prompt="This program is"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/command_line.h"
#include "brigade/device/context.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/saved_model.h"
#include "brigade/models/generator.h"
#include "brigade/models/parameter_arrays.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(std::string, checkpoint, "",
          "What train has saved with --save, of any stage and grid: the folder, whose newest "
          "checkpoint is taken, or one checkpoint; or weights of //checkpoint:export.");
ABSL_FLAG(int64_t, heads, 0, "Of the model; 0: as the checkpoint says. Exported weights do not.");
ABSL_FLAG(std::string, prompt, "", "Text to write on.");
ABSL_FLAG(int64_t, max_new_tokens, 100,
          "How many bytes to write; prompt and text fit the context.");
ABSL_FLAG(double, temperature, 1, "What logits are divided by; 0: the most probable byte always.");
ABSL_FLAG(int64_t, top_k, 0, "Only the k most probable bytes come; 0: all.");
ABSL_FLAG(double, top_p, 1, "Only the most probable bytes come that have this share together.");
ABSL_FLAG(uint64_t, seed, 0, "The same seed gives the same text.");
ABSL_FLAG(std::string, dtype, "fp32", "fp32, fp16 or bf16: of weights and activations.");
ABSL_FLAG(std::string, device, "cpu", "cpu or cuda.");
ABSL_FLAG(int, threads, 0, "Of the CPU; 0: one for each core.");

namespace brigade::gpt {
namespace {

absl::Status Run() {
  const auto dtype = precision::ParseTrainingFormat(absl::GetFlag(FLAGS_dtype));
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("--dtype is ",
                                                   device::Quoted(absl::GetFlag(FLAGS_dtype), 40),
                                                   "; it must be fp32, fp16 or bf16"));
  }
  const std::string device_name = absl::GetFlag(FLAGS_device);
  if (device_name != "cpu" && device_name != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device is ", device::Quoted(device_name, 40), "; it must be cpu or cuda"));
  }
  if (absl::GetFlag(FLAGS_threads) < 0 || absl::GetFlag(FLAGS_heads) < 0) {
    return absl::InvalidArgumentError("--threads and --heads must be at least 0");
  }
  if (absl::GetFlag(FLAGS_checkpoint).empty()) {
    return absl::InvalidArgumentError("--checkpoint is missing");
  }
  std::vector<int32_t> prompt;
  for (const char byte : absl::GetFlag(FLAGS_prompt)) {
    prompt.push_back(static_cast<uint8_t>(byte));
  }
  if (prompt.empty()) return absl::InvalidArgumentError("--prompt is missing");
  BRIGADE_ASSIGN_OR_RETURN(
      const SavedModel saved,
      SavedModel::Open(device::FromUsersFolder(absl::GetFlag(FLAGS_checkpoint)),
                       absl::GetFlag(FLAGS_heads)));
  models::GenerateOptions options;
  options.sampling = {absl::GetFlag(FLAGS_temperature), absl::GetFlag(FLAGS_top_k),
                      absl::GetFlag(FLAGS_top_p), absl::GetFlag(FLAGS_seed)};
  options.new_tokens = absl::GetFlag(FLAGS_max_new_tokens);
  const auto size = static_cast<int64_t>(prompt.size());
  const int64_t positions = saved.options().context;
  if (options.new_tokens > positions - size + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        size, " bytes and ", options.new_tokens, " new ones; the model's context is ", positions));
  }
  device::ContextOptions of_context;
  if (device_name == "cuda") of_context.device = device::Cuda();
  of_context.compute_threads = absl::GetFlag(FLAGS_threads);
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create(of_context));
  const int64_t capacity = size + std::max<int64_t>(options.new_tokens, 1) - 1;
  BRIGADE_ASSIGN_OR_RETURN(
      auto generator,
      models::Generator::Create(saved.config(), {.dtype = *dtype, .capacity = capacity}, *context));
  BRIGADE_ASSIGN_OR_RETURN(
      auto weights,
      models::ParameterArrays::Create(generator.model().spec(), {.dtype = *dtype}, *context));
  BRIGADE_RETURN_IF_ERROR(saved.Load(generator.model(), weights, *context));
  const auto print = [&](int32_t byte) {
    std::fputc(byte, stdout);
    return std::fflush(stdout) == 0;
  };
  BRIGADE_RETURN_IF_ERROR(generator.Generate(prompt, options, weights, print).status());
  std::printf("\n");
  return std::fflush(stdout) == 0 ? absl::OkStatus() : absl::DataLossError("cannot write the text");
}

}  // namespace
}  // namespace brigade::gpt

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv, "Writes a text on by a model that //examples/gpt:train has saved.",
      brigade::gpt::Run);
}
