#include "brigade/data/text_dataset.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "brigade/data/source_files.h"
#include "brigade/data/utf8_lines.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

absl::StatusOr<std::string> ReadText(const std::string& path, const Tokenizer& tokenizer,
                                     BadData& bad) {
  BRIGADE_ASSIGN_OR_RETURN(std::string text, device::ReadFile(path));
  if (!tokenizer.is_bytewise()) {
    BRIGADE_RETURN_IF_ERROR(LeaveBadLinesOut(path, bad, text));
  }
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(ShownPath(path), " is empty"));
  return text;
}

// The tokens of a text, with those around it. After an error there are none.
absl::Status AddDocument(absl::string_view text, const Tokenizer& tokenizer, TokenStore& tokens) {
  std::vector<int32_t> ids(tokenizer.before_text().begin(), tokenizer.before_text().end());
  // Of bytes the ids are four times as large as the text: in pieces they take little.
  constexpr size_t kPiece = 1 << 20;
  while (tokenizer.is_bytewise() && text.size() > kPiece) {
    BRIGADE_RETURN_IF_ERROR(tokenizer.Encode(text.substr(0, kPiece), SpecialText::kIsText, ids));
    tokens.Append(ids);
    ids.clear();
    text.remove_prefix(kPiece);
  }
  BRIGADE_RETURN_IF_ERROR(tokenizer.Encode(text, SpecialText::kIsText, ids));
  ids.insert(ids.end(), tokenizer.after_text().begin(), tokenizer.after_text().end());
  const std::optional<int32_t> end = tokenizer.end_of_text();
  if (end.has_value() && (ids.empty() || ids.back() != *end)) ids.push_back(*end);
  tokens.Append(ids);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextDataset>> TextDataset::Create(const std::string& path,
                                                                 const Tokenizer& tokenizer,
                                                                 const TextOptions& options) {
  if (options.context < 1 || options.context > kMostContext) {
    return absl::InvalidArgumentError(absl::StrCat("a context of ", options.context,
                                                   " positions; 1 to ", kMostContext, " can be"));
  }
  if (options.max_samples < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_samples is ", options.max_samples));
  }
  BadData bad(options.on_error);
  BRIGADE_ASSIGN_OR_RETURN(const auto files, SourceFiles(path, options.ending, bad));
  auto dataset = absl::WrapUnique(new TextDataset(options, tokenizer.vocabulary()));
  TokenStore& tokens = dataset->tokens_;
  int64_t bytes = 0;
  for (const std::string& file : files) {
    const bool is_enough =
        options.max_samples > 0 && (tokens.size() - 1) / options.context >= options.max_samples;
    if (is_enough) break;
    const absl::StatusOr<std::string> text = ReadText(file, tokenizer, bad);
    if (!text.ok()) {
      BRIGADE_RETURN_IF_ERROR(bad.File(text.status()));
      continue;
    }
    bytes += std::ssize(*text);
    BRIGADE_RETURN_IF_ERROR(CheckDataBytes(file, bytes));
    const int64_t begin = tokens.size();
    const absl::Status added = AddDocument(*text, tokenizer, tokens);
    if (!added.ok()) {
      BRIGADE_RETURN_IF_ERROR(bad.File(
          absl::InvalidArgumentError(absl::StrCat(ShownPath(file), ": ", added.message()))));
      continue;
    }
    // One of which the tokenizer makes nothing is none.
    if (tokens.size() > begin) dataset->documents_.push_back(begin);
  }
  dataset->skipped_ = bad.skipped();
  tokens.ShrinkToFit();
  if (tokens.size() < 2) {
    const std::string skipped = dataset->skipped_.Text();
    return absl::InvalidArgumentError(
        absl::StrCat(ShownPath(path), " makes ", tokens.size() == 0 ? "no token" : "one token",
                     ", and a sample needs two", skipped.empty() ? "" : "; ", skipped));
  }
  // Of n tokens n - 1 are labels.
  const int64_t labels = tokens.size() - 1;
  dataset->size_ = labels / options.context + (labels % options.context != 0 ? 1 : 0);
  if (options.max_samples > 0) dataset->size_ = std::min(dataset->size_, options.max_samples);
  return dataset;
}

TokenRange TextDataset::WindowOf(int64_t sample) const {
  const int64_t begin = sample * context_;
  return {begin, std::min(begin + context_ + 1, tokens_.size())};
}

TokenRange TextDataset::DocumentsOf(TokenRange window) const {
  const auto behind = [&](int64_t token) {
    return std::upper_bound(documents_.begin(), documents_.end(), token) - documents_.begin();
  };
  return {behind(window.begin) - 1, behind(window.end - 1)};
}

int64_t TextDataset::CountedLabels(int64_t sample) const {
  const TokenRange window = WindowOf(sample);
  const int64_t labels = window.end - window.begin - 1;
  if (!separate_) return labels;
  // The first token of a document follows from nothing.
  const TokenRange documents = DocumentsOf(window);
  return labels - (documents.end - documents.begin - 1);
}

absl::Status TextDataset::Read(int64_t sample, const Row& row) const {
  BRIGADE_RETURN_IF_ERROR(CheckRead(sample, row, *this));
  const TokenRange window = WindowOf(sample);
  RowWriter writer(row);
  if (!separate_) {
    writer.Add(tokens_, window, {window});
  } else {
    const TokenRange documents = DocumentsOf(window);
    for (int64_t i = documents.begin; i < documents.end; ++i) {
      const auto next = static_cast<size_t>(i) + 1;
      const int64_t end = next < documents_.size() ? documents_[next] : tokens_.size();
      const TokenRange part = {std::max(window.begin, documents_[static_cast<size_t>(i)]),
                               std::min(window.end, end)};
      writer.Add(tokens_, part, {part});
    }
  }
  writer.Finish();
  return absl::OkStatus();
}

}  // namespace brigade::data
