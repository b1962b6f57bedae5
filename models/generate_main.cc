// Writes a text on: bazel run //models:generate -- --model=FOLDER --prompt=TEXT

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/data/chat_template.h"
#include "brigade/device/command_line.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/generator.h"
#include "brigade/models/model_flags.h"

ABSL_FLAG(std::string, prompt, "", "Text to write on; or give --ids.");
ABSL_FLAG(std::string, ids, "", "Tokens to write on, by their numbers: 15496,11,995");
ABSL_FLAG(std::string, chat_template, "",
          "The prompt is what a user says, and the model answers: plain, alpaca, chatml or llama3, "
          "or a JSON file (docs/data.md). Empty: the prompt is a text.");
ABSL_FLAG(int64_t, max_new_tokens, 100, "How many tokens to write at most.");
ABSL_FLAG(double, temperature, 1, "What logits are divided by; 0: the most probable token always.");
ABSL_FLAG(int64_t, top_k, 0, "Only the k most probable tokens come; 0: all.");
ABSL_FLAG(double, top_p, 1, "Only the most probable tokens come that have this share together.");
ABSL_FLAG(uint64_t, seed, 0, "The same seed gives the same tokens.");
ABSL_FLAG(std::string, stop, "",
          "Tokens after which nothing comes, besides those that the model's files name: 50256");
ABSL_FLAG(bool, ignore_eos, false, "Whether the text goes on behind the tokens that end one.");

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

absl::StatusOr<std::vector<int32_t>> EncodedPrompt(const data::Tokenizer& tokenizer) {
  const auto before = tokenizer.before_text();
  std::vector<int32_t> ids(before.begin(), before.end());
  const std::string prompt = absl::GetFlag(FLAGS_prompt), chat = absl::GetFlag(FLAGS_chat_template);
  const auto append = [&](const std::string& text, data::SpecialText special) {
    const absl::Status status = tokenizer.Encode(text, special, ids);
    return status.ok() ? status
                       : absl::Status(status.code(), absl::StrCat("--prompt: ", status.message()));
  };
  if (chat.empty()) {
    BRIGADE_RETURN_IF_ERROR(append(prompt, data::SpecialText::kIsToken));
    return ids;
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto turns, data::ChatTemplate::FromNameOrFile(chat));
  for (const data::ChatPart& part : turns.Render({{data::ChatRole::kUser, prompt}})) {
    BRIGADE_RETURN_IF_ERROR(append(
        part.text, part.is_template ? data::SpecialText::kIsToken : data::SpecialText::kIsText));
  }
  BRIGADE_RETURN_IF_ERROR(append(turns.assistant.before, data::SpecialText::kIsToken));
  return ids;
}

absl::Status Run() {
  const bool by_ids = !absl::GetFlag(FLAGS_ids).empty();
  BRIGADE_ASSIGN_OR_RETURN(ChosenModel chosen, ModelFromFlags());
  if (by_ids != absl::GetFlag(FLAGS_prompt).empty()) {
    return absl::InvalidArgumentError("give one of --prompt and --ids");
  }
  if (by_ids && !absl::GetFlag(FLAGS_chat_template).empty()) {
    return absl::InvalidArgumentError("--chat_template is for a --prompt");
  }
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::vector<int32_t> prompt;
  if (by_ids) {
    BRIGADE_ASSIGN_OR_RETURN(prompt, ParseIds("ids", absl::GetFlag(FLAGS_ids)));
  } else {
    BRIGADE_ASSIGN_OR_RETURN(tokenizer, TokenizerFromFlags(chosen));
    BRIGADE_ASSIGN_OR_RETURN(prompt, EncodedPrompt(*tokenizer));
  }
  GenerateOptions options;
  options.sampling = {absl::GetFlag(FLAGS_temperature), absl::GetFlag(FLAGS_top_k),
                      absl::GetFlag(FLAGS_top_p), absl::GetFlag(FLAGS_seed)};
  options.new_tokens = absl::GetFlag(FLAGS_max_new_tokens);
  BRIGADE_ASSIGN_OR_RETURN(options.stop_tokens, ParseIds("stop", absl::GetFlag(FLAGS_stop)));
  std::vector<int32_t> ends;
  if (!absl::GetFlag(FLAGS_ignore_eos)) {
    BRIGADE_ASSIGN_OR_RETURN(ends, EndTokens(chosen.folder));
    options.stop_tokens.insert(options.stop_tokens.end(), ends.begin(), ends.end());
  }
  const auto size = static_cast<int64_t>(prompt.size());
  // In this order: the sum may have no number.
  if (options.new_tokens > chosen.config.positions - size + 1) {
    return absl::InvalidArgumentError(absl::StrCat(size, " tokens and ", options.new_tokens,
                                                   " new ones; the model has ",
                                                   chosen.config.positions, " positions"));
  }
  const int64_t wanted = size + std::max<int64_t>(options.new_tokens, 1) - 1;
  BRIGADE_ASSIGN_OR_RETURN(
      auto generator,
      Generator::Create(chosen.config,
                        {.dtype = chosen.dtype, .capacity = wanted, .lora = chosen.lora},
                        *chosen.context));
  BRIGADE_ASSIGN_OR_RETURN(auto weights, LoadChosen(chosen, generator.model()));
  absl::Status decoded;
  const auto print = [&](int32_t token) {
    if (by_ids) {
      std::printf("%d\n", token);
    } else if (std::find(ends.begin(), ends.end(), token) == ends.end()) {
      std::string text;
      decoded = tokenizer->Decode({token}, text);
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
    return decoded.ok() && std::fflush(stdout) == 0;
  };
  BRIGADE_RETURN_IF_ERROR(generator.Generate(prompt, options, weights, print).status());
  BRIGADE_RETURN_IF_ERROR(decoded);
  if (!by_ids) std::printf("\n");
  return std::fflush(stdout) == 0 ? absl::OkStatus() : absl::DataLossError("cannot write the text");
}

}  // namespace
}  // namespace brigade::models

int main(int argc, char** argv) {
  return brigade::device::RunProgram(argc, argv, "Writes a text on by a language model.",
                                     brigade::models::Run);
}
