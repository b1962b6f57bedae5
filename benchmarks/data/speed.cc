// How fast tokenizers and JSON lines are read, made and trained, on one thread, in seconds of
// the processor. check_data runs it beside Hugging Face's tokenizers: a line of words and numbers
// for each.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "brigade/data/line_dataset.h"
#include "brigade/data/tokenizers/bpe_training.h"
#include "brigade/data/tokenizers/byte_tokenizer.h"
#include "brigade/data/tokenizers/tokenizer_json.h"
#include "brigade/device/command_line.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(std::string, text, "", "a text; documents are apart by a byte 0");
ABSL_FLAG(std::string, tokenizer, "", "a tokenizer.json; without it one is trained from the text");
ABSL_FLAG(int64_t, vocabulary, 8192, "of the tokenizer that is trained");
ABSL_FLAG(std::string, lines, "/tmp/brigade_speed.jsonl",
          "where JSON lines of the text are written");
ABSL_FLAG(int, rounds, 3, "times that each is measured; the fastest counts");

namespace brigade::data {
namespace {

// Of this process: what others do on the machine does not count.
double ProcessorSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <typename F>
absl::StatusOr<double> Seconds(F run) {
  double best = 1e30;
  for (int round = 0; round < std::max(1, absl::GetFlag(FLAGS_rounds)); ++round) {
    const double begin = ProcessorSeconds();
    BRIGADE_RETURN_IF_ERROR(run());
    best = std::min(best, ProcessorSeconds() - begin);
  }
  return best;
}

absl::Status Run() {
  BRIGADE_ASSIGN_OR_RETURN(const std::string text,
                           device::ReadFile(device::FromUsersFolder(absl::GetFlag(FLAGS_text))));
  const std::vector<absl::string_view> documents = absl::StrSplit(text, '\0', absl::SkipEmpty());
  const auto bytes = static_cast<double>(text.size());

  std::unique_ptr<BpeTokenizer> trained;
  BRIGADE_ASSIGN_OR_RETURN(
      const double train_seconds, Seconds([&]() -> absl::Status {
        BRIGADE_ASSIGN_OR_RETURN(
            BpeTraining training,
            BpeTraining::Create({.vocabulary = absl::GetFlag(FLAGS_vocabulary)}));
        for (const absl::string_view document : documents) {
          BRIGADE_RETURN_IF_ERROR(training.Add(document));
        }
        BRIGADE_ASSIGN_OR_RETURN(trained, training.Train());
        return absl::OkStatus();
      }));
  absl::PrintF("train %.3f s, %.2f MB/s, %d tokens\n", train_seconds, bytes / train_seconds / 1e6,
               trained->vocabulary());

  if (!absl::GetFlag(FLAGS_tokenizer).empty()) {
    BRIGADE_ASSIGN_OR_RETURN(
        trained, ReadTokenizerJson(device::FromUsersFolder(absl::GetFlag(FLAGS_tokenizer))));
  }
  std::vector<int32_t> ids;
  BRIGADE_ASSIGN_OR_RETURN(
      const double encode_seconds, Seconds([&]() -> absl::Status {
        ids.clear();
        for (const absl::string_view document : documents) {
          BRIGADE_RETURN_IF_ERROR(trained->Encode(document, SpecialText::kIsToken, ids));
        }
        return absl::OkStatus();
      }));
  absl::PrintF("encode %.3f s, %.2f MB/s, %.0f tokens/s, %d tokens\n", encode_seconds,
               bytes / encode_seconds / 1e6, static_cast<double>(ids.size()) / encode_seconds,
               ids.size());

  // Prompts and answers of 200 and 600 bytes or so.
  const std::string path = absl::GetFlag(FLAGS_lines);
  BRIGADE_ASSIGN_OR_RETURN(auto file, device::FileReplacement::Begin(path));
  double line_bytes = 0;
  for (const absl::string_view document : documents) {
    for (size_t at = 0; at + 800 <= document.size(); at += 800) {
      const nlohmann::json line = {{"prompt", std::string(document.substr(at, 200))},
                                   {"answer", std::string(document.substr(at + 200, 600))}};
      const std::string written =
          line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
      line_bytes += static_cast<double>(written.size());
      file.Write(written);
    }
  }
  BRIGADE_RETURN_IF_ERROR(file.Commit());
  const ByteTokenizer byte_tokenizer;
  BRIGADE_ASSIGN_OR_RETURN(const auto chat, ChatTemplate::FromNameOrFile("plain"));
  for (const Tokenizer* tokenizer : {static_cast<const Tokenizer*>(&byte_tokenizer),
                                     static_cast<const Tokenizer*>(trained.get())}) {
    int64_t lines = 0;
    BRIGADE_ASSIGN_OR_RETURN(
        const double seconds, Seconds([&]() -> absl::Status {
          BRIGADE_ASSIGN_OR_RETURN(
              const auto dataset,
              LineDataset::Create(path, *tokenizer, {.context = 2048, .pack = true, .chat = chat}));
          lines = dataset->lines();
          return absl::OkStatus();
        }));
    absl::PrintF("lines_%s %.3f s, %.2f MB/s, %d lines\n",
                 tokenizer == &byte_tokenizer ? "bytes" : "bpe", seconds,
                 line_bytes / seconds / 1e6, lines);
  }
  std::remove(path.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::data

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv, "Measures tokenizers and the reader of JSON lines on one thread.",
      brigade::data::Run);
}
