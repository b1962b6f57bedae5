// Learns a byte-level BPE from texts or JSON lines and writes it as tokenizer.json:
// bazel run //data:train_tokenizer -- --data=corpus --vocabulary=4096 --out=tokenizer.json

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/data/open.h"
#include "brigade/data/tokenizer_text.h"
#include "brigade/data/tokenizers/bpe_training.h"
#include "brigade/data/tokenizers/tokenizer_json.h"
#include "brigade/device/command_line.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

ABSL_FLAG(std::string, data, "",
          "a text, a file of JSON lines (.jsonl), or a folder of such files");
ABSL_FLAG(int64_t, vocabulary, 4096, "tokens in all: special ones, 256 bytes, and merges");
ABSL_FLAG(int64_t, least_count, 2, "a pair that comes less often is not merged");
ABSL_FLAG(std::string, pattern, "gpt2",
          "how texts are cut into pieces: gpt2, llama3, qwen2 or none");
ABSL_FLAG(std::vector<std::string>, special_tokens, {"<|endoftext|>"},
          "tokens that get the first ids, with commas between");
ABSL_FLAG(std::string, prompt_key, "prompt", "the key of a JSON line that has the prompt");
ABSL_FLAG(std::string, answer_key, "answer", "the key of a JSON line that has the answer");
ABSL_FLAG(std::string, on_error, "refuse", "of bad lines and files: refuse or skip");
ABSL_FLAG(std::string, out, "tokenizer.json", "the file that is written");

namespace brigade::data {
namespace {

absl::StatusOr<SplitPattern> ParsePattern(absl::string_view text) {
  if (text == "gpt2") return SplitPattern::kGpt2;
  if (text == "llama3") return SplitPattern::kLlama3;
  if (text == "qwen2") return SplitPattern::kQwen2;
  if (text == "none") return SplitPattern::kNone;
  return absl::InvalidArgumentError(
      absl::StrCat("--pattern: ", device::Quoted(text), " is none of gpt2, llama3, qwen2, none"));
}

absl::Status Run() {
  BRIGADE_ASSIGN_OR_RETURN(const SplitPattern pattern, ParsePattern(absl::GetFlag(FLAGS_pattern)));
  BRIGADE_ASSIGN_OR_RETURN(const OnError on_error, ParseOnError(absl::GetFlag(FLAGS_on_error)));
  if (absl::GetFlag(FLAGS_data).empty()) {
    return absl::InvalidArgumentError("--data names no file or folder");
  }
  std::vector<std::string> special = absl::GetFlag(FLAGS_special_tokens);
  // A list without words is one empty word.
  if (special == std::vector<std::string>{""}) special.clear();
  BRIGADE_ASSIGN_OR_RETURN(BpeTraining training,
                           BpeTraining::Create({.vocabulary = absl::GetFlag(FLAGS_vocabulary),
                                                .least_count = absl::GetFlag(FLAGS_least_count),
                                                .pattern = pattern,
                                                .special_tokens = std::move(special)}));
  BadData bad(on_error);
  BRIGADE_RETURN_IF_ERROR(ForTexts(
      device::FromUsersFolder(absl::GetFlag(FLAGS_data)),
      {.prompt = absl::GetFlag(FLAGS_prompt_key), .answer = absl::GetFlag(FLAGS_answer_key)}, bad,
      [&](absl::string_view text) { return training.Add(text); }));
  BRIGADE_ASSIGN_OR_RETURN(const auto tokenizer, training.Train());
  const std::string out = device::FromUsersFolder(absl::GetFlag(FLAGS_out));
  BRIGADE_RETURN_IF_ERROR(WriteTokenizerJson(*tokenizer, out));
  absl::PrintF("%s: %d tokens, %d merges, of %d pieces, %d different\n", ShownPath(out),
               tokenizer->vocabulary(), tokenizer->model().tokens().merges.size(),
               training.pieces(), training.different_pieces());
  const std::string skipped = bad.skipped().Text();
  if (!skipped.empty()) absl::PrintF("%s\n", skipped);
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::data

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv,
      "Learns a byte-level BPE from texts or JSON lines and writes it as Hugging Face's "
      "tokenizer.json.",
      brigade::data::Run);
}
