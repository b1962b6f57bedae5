// Says what a data set consists of, and shows samples as a model sees them:
// bazel run //data:inspect -- --data=chats.jsonl --tokenizer=tokenizer.json --chat_template=chatml

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/data/chat_template.h"
#include "brigade/data/open.h"
#include "brigade/device/command_line.h"
#include "brigade/device/status_macros.h"

ABSL_FLAG(std::string, data, "",
          "a text, a file of JSON lines (.jsonl), or a folder of such files");
ABSL_FLAG(std::string, tokenizer, "byte", "\"byte\", or a tokenizer.json of a byte-level BPE");
ABSL_FLAG(int64_t, context, 256, "positions of a sample");
ABSL_FLAG(int64_t, cutoff_len, 0, "tokens that are kept of a JSON line; 0: as many as fit");
ABSL_FLAG(int64_t, max_samples, 0, "lines, or windows of text, that are taken; 0: all");
ABSL_FLAG(bool, pack, false, "whether several JSON lines share a sample");
ABSL_FLAG(std::string, chat_template, "plain",
          "plain, alpaca, chatml or llama3, or a JSON file: docs/data.md");
ABSL_FLAG(std::string, prompt_key, "prompt", "the key of a JSON line that has the prompt");
ABSL_FLAG(std::string, answer_key, "answer", "the key of a JSON line that has the answer");
ABSL_FLAG(bool, separate_documents, false, "whether a text does not see the one before it");
ABSL_FLAG(std::string, on_error, "refuse", "of bad lines and files: refuse or skip");
ABSL_FLAG(int64_t, show, 1, "samples that are shown");

namespace brigade::data {
namespace {

// A row's text, with what counts between [[ and ]], and a bar between segments.
absl::StatusOr<std::string> ShownRow(const Row& row, const Tokenizer& tokenizer) {
  std::string shown;
  bool counts = false;
  const auto set = [&](bool now) {
    if (now != counts) shown += now ? "[[" : "]]";
    counts = now;
  };
  const size_t context = row.labels.size();
  for (size_t i = 0; i <= context; ++i) {
    const bool is_label = i > 0 && row.labels[i - 1] != kIgnored;
    const bool is_token = is_label || (i < context && row.segments[i] != kPadding);
    if (!is_token) continue;
    set(is_label);
    if (i > 0 && i < context && row.segments[i] != row.segments[i - 1]) shown += " | ";
    std::string text;
    BRIGADE_RETURN_IF_ERROR(tokenizer.Decode({row.ids[i]}, text));
    shown += absl::CEscape(text);
  }
  set(false);
  return shown;
}

absl::Status Run() {
  BRIGADE_ASSIGN_OR_RETURN(const OnError on_error, ParseOnError(absl::GetFlag(FLAGS_on_error)));
  // Whether there is such a one; with texts it is of no use.
  BRIGADE_RETURN_IF_ERROR(
      ChatTemplate::FromNameOrFile(absl::GetFlag(FLAGS_chat_template)).status());
  if (absl::GetFlag(FLAGS_data).empty()) {
    return absl::InvalidArgumentError("--data names no file or folder");
  }
  // "byte" is a name, not a file.
  const std::string named = absl::GetFlag(FLAGS_tokenizer);
  BRIGADE_ASSIGN_OR_RETURN(const auto tokenizer,
                           OpenTokenizer(named == "byte" ? named : device::FromUsersFolder(named)));
  BRIGADE_ASSIGN_OR_RETURN(const OpenedData data,
                           OpenData({.path = device::FromUsersFolder(absl::GetFlag(FLAGS_data)),
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
  const Dataset& dataset = *data.dataset;
  int64_t labels = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) labels += dataset.CountedLabels(i);
  const double positions = static_cast<double>(dataset.size() * dataset.context());
  absl::PrintF("%s\n%d of their positions count, %.1f %%\n", data.description, labels,
               100 * static_cast<double>(labels) / positions);
  const std::string skipped = data.skipped.Text();
  if (!skipped.empty()) absl::PrintF("%s\n", skipped);

  const auto context = static_cast<size_t>(dataset.context());
  std::vector<int32_t> memory(4 * context + 1);
  const Row row = {absl::MakeSpan(memory).subspan(0, context + 1),
                   absl::MakeSpan(memory).subspan(context + 1, context),
                   absl::MakeSpan(memory).subspan(2 * context + 1, context),
                   absl::MakeSpan(memory).subspan(3 * context + 1, context)};
  const int64_t shown = std::min(dataset.size(), absl::GetFlag(FLAGS_show));
  for (int64_t i = 0; i < shown; ++i) {
    BRIGADE_RETURN_IF_ERROR(dataset.Read(i, row));
    BRIGADE_ASSIGN_OR_RETURN(const std::string text, ShownRow(row, *tokenizer));
    absl::PrintF("sample %d: %s\n", i, text);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::data

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv, "Says what a data set consists of, and shows samples as a model sees them.",
      brigade::data::Run);
}
