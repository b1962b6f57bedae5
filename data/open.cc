#include "brigade/data/open.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/data/chat_template.h"
#include "brigade/data/line_dataset.h"
#include "brigade/data/source_files.h"
#include "brigade/data/text_dataset.h"
#include "brigade/data/tokenizers/byte_tokenizer.h"
#include "brigade/data/tokenizers/tokenizer_json.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

std::string Samples(const Dataset& dataset) {
  return absl::StrCat(dataset.size(), " samples of ", dataset.context(), " positions");
}

absl::StatusOr<OpenedData> OpenLines(const DataOptions& options, const Tokenizer& tokenizer) {
  if (options.separate_documents) {
    return absl::InvalidArgumentError("separate_documents is of texts, and these are JSON lines");
  }
  BRIGADE_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::FromNameOrFile(options.chat_template));
  BRIGADE_ASSIGN_OR_RETURN(std::shared_ptr<LineDataset> lines,
                           LineDataset::Create(options.path, tokenizer,
                                               {.context = options.context,
                                                .cutoff_len = options.cutoff_len,
                                                .max_samples = options.max_samples,
                                                .pack = options.pack,
                                                .keys = options.keys,
                                                .chat = std::move(chat),
                                                .on_error = options.on_error}));
  std::string description =
      absl::StrCat(ShownPath(options.path), ": ", lines->lines(), " lines, ", lines->tokens(),
                   " tokens, ", lines->cut(), " lines cut, ", Samples(*lines));
  Skipped skipped = lines->skipped();
  return OpenedData{std::move(lines), std::move(skipped), std::move(description)};
}

absl::StatusOr<OpenedData> OpenTexts(const DataOptions& options, const Tokenizer& tokenizer) {
  if (options.cutoff_len != 0 || options.pack) {
    return absl::InvalidArgumentError("cutoff_len and pack are of JSON lines, and these are texts");
  }
  BRIGADE_ASSIGN_OR_RETURN(std::shared_ptr<TextDataset> texts,
                           TextDataset::Create(options.path, tokenizer,
                                               {.context = options.context,
                                                .on_error = options.on_error,
                                                .max_samples = options.max_samples,
                                                .separate_documents = options.separate_documents}));
  std::string description = absl::StrCat(ShownPath(options.path), ": ", texts->documents(),
                                         " texts, ", texts->tokens(), " tokens, ", Samples(*texts));
  Skipped skipped = texts->skipped();
  return OpenedData{std::move(texts), std::move(skipped), std::move(description)};
}

}  // namespace

absl::StatusOr<OpenedData> OpenData(const DataOptions& options, const Tokenizer& tokenizer) {
  // Only the names count here; what cannot be read is told where it is opened.
  BadData ignored(OnError::kSkip);
  BRIGADE_ASSIGN_OR_RETURN(const auto files, SourceFiles(options.path, "", ignored));
  const auto lines = std::count_if(files.begin(), files.end(), [](const std::string& file) {
    return absl::EndsWith(file, ".jsonl");
  });
  if (lines != 0 && lines != std::ssize(files)) {
    return absl::InvalidArgumentError(
        absl::StrCat("of the ", files.size(), " files in ", ShownPath(options.path), " ", lines,
                     " end with .jsonl; a data set is of JSON lines or of texts"));
  }
  return lines != 0 ? OpenLines(options, tokenizer) : OpenTexts(options, tokenizer);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& name_or_path) {
  if (name_or_path == "byte") return std::make_unique<ByteTokenizer>();
  auto tokenizer = ReadTokenizerJson(name_or_path);
  if (tokenizer.ok()) return *std::move(tokenizer);
  return absl::Status(
      tokenizer.status().code(),
      absl::StrCat("a tokenizer is \"byte\" or a tokenizer.json: ", tokenizer.status().message()));
}

}  // namespace brigade::data
