// How well a model says a file: bazel run //models:predict -- --model=FOLDER --data=FILE

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "brigade/data/open.h"
#include "brigade/device/command_line.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/model_flags.h"
#include "brigade/models/predictor.h"

ABSL_FLAG(std::string, data, "",
          "A text, a file of JSON lines (.jsonl), or a folder of such files: docs/data.md.");
ABSL_FLAG(int64_t, context, 256, "Positions of a sample.");
ABSL_FLAG(int64_t, samples, 8, "Samples of one pass.");
ABSL_FLAG(int64_t, max_samples, 0, "Lines, or windows of text, that are taken; 0: all.");
ABSL_FLAG(bool, pack, false, "JSON lines share samples, and none sees another.");
ABSL_FLAG(bool, separate_documents, false, "Of texts no file sees the one before it.");
ABSL_FLAG(bool, restart_positions, true,
          "With either, positions are counted from the begin of each line or file.");
ABSL_FLAG(int64_t, cutoff_len, 0, "Tokens that are kept of a JSON line; 0: as many as fit.");
ABSL_FLAG(std::string, chat_template, "plain",
          "Of JSON lines: plain, alpaca, chatml or llama3, or a JSON file: docs/data.md.");
ABSL_FLAG(std::string, prompt_key, "prompt", "The key of a JSON line that has the prompt.");
ABSL_FLAG(std::string, answer_key, "answer", "The key of a JSON line that has the answer.");
ABSL_FLAG(std::string, on_error, "refuse", "Of bad lines and files: refuse or skip.");

namespace brigade::models {
namespace {

absl::Status Run() {
  BRIGADE_ASSIGN_OR_RETURN(const auto on_error, data::ParseOnError(absl::GetFlag(FLAGS_on_error)));
  BRIGADE_RETURN_IF_ERROR(
      data::ChatTemplate::FromNameOrFile(absl::GetFlag(FLAGS_chat_template)).status());
  const bool are_apart = absl::GetFlag(FLAGS_pack) || absl::GetFlag(FLAGS_separate_documents);
  const bool restart_positions = absl::GetFlag(FLAGS_restart_positions);
  if (!restart_positions && !are_apart) {
    return absl::InvalidArgumentError(
        "--restart_positions is false, which is of --pack and --separate_documents: give one of "
        "them");
  }
  BRIGADE_ASSIGN_OR_RETURN(const ChosenModel chosen, ModelFromFlags());
  if (absl::GetFlag(FLAGS_data).empty()) {
    return absl::InvalidArgumentError("--data names no file or folder");
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto tokenizer, TokenizerFromFlags(chosen));
  BRIGADE_ASSIGN_OR_RETURN(
      const data::OpenedData data,
      data::OpenData({.path = device::FromUsersFolder(absl::GetFlag(FLAGS_data)),
                      .context = absl::GetFlag(FLAGS_context),
                      .max_samples = absl::GetFlag(FLAGS_max_samples),
                      .on_error = on_error,
                      .cutoff_len = absl::GetFlag(FLAGS_cutoff_len),
                      .pack = absl::GetFlag(FLAGS_pack),
                      .chat_template = absl::GetFlag(FLAGS_chat_template),
                      .keys = {.prompt = absl::GetFlag(FLAGS_prompt_key),
                               .answer = absl::GetFlag(FLAGS_answer_key)},
                      .separate_documents = absl::GetFlag(FLAGS_separate_documents)},
                     *tokenizer));
  BRIGADE_ASSIGN_OR_RETURN(auto predictor,
                           Predictor::Create(chosen.config,
                                             {.dtype = chosen.dtype,
                                              .samples = absl::GetFlag(FLAGS_samples),
                                              .positions = absl::GetFlag(FLAGS_context),
                                              .segments = are_apart,
                                              .restart_positions = restart_positions,
                                              .lora = chosen.lora},
                                             *chosen.context));
  BRIGADE_ASSIGN_OR_RETURN(auto weights, LoadChosen(chosen, predictor.model()));
  std::fprintf(stderr, "%s\n", data.description.c_str());
  const std::string skipped = data.skipped.Text();
  if (!skipped.empty()) std::fprintf(stderr, "%s\n", skipped.c_str());
  BRIGADE_ASSIGN_OR_RETURN(const Prediction prediction, predictor.Predict(*data.dataset, weights));
  if (prediction.tokens == 0) {
    return absl::InvalidArgumentError("no position of the data counts");
  }
  // An object of JSON, for other programs.
  absl::PrintF(
      "{\"samples\": %d, \"tokens\": %d, \"runtime\": %.6g, \"samples_per_second\": %.6g, "
      "\"loss\": %.9g, \"perplexity\": %.9g, \"accuracy\": %.9g}\n",
      prediction.samples, prediction.tokens, prediction.seconds, prediction.samples_per_second(),
      prediction.loss(), prediction.perplexity(), prediction.accuracy());
  return std::fflush(stdout) == 0 ? absl::OkStatus()
                                  : absl::DataLossError("cannot write the result");
}

}  // namespace
}  // namespace brigade::models

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv,
      "Says how well a language model says what follows in a file: loss, perplexity, accuracy.",
      brigade::models::Run);
}
