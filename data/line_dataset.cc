#include "brigade/data/line_dataset.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "brigade/data/line_reader.h"
#include "brigade/data/packing.h"
#include "brigade/data/source_files.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

absl::Status Check(const LineOptions& options) {
  const auto invalid = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what...));
  };
  if (options.context < 1 || options.context > kMostContext) {
    return invalid("a context of ", options.context, " positions; 1 to ", kMostContext, " can be");
  }
  const int64_t most = options.context + 1;
  if (options.cutoff_len < 0 || options.cutoff_len == 1 || options.cutoff_len > most) {
    return invalid("cutoff_len is ", options.cutoff_len, "; a line needs 2 tokens, and a row of ",
                   options.context, " positions has at most ", most);
  }
  if (options.max_samples < 0) return invalid("max_samples is ", options.max_samples);
  if (options.most_line_bytes < 1) {
    return invalid("lines have at most ", options.most_line_bytes, " bytes");
  }
  return CheckKeys(options.keys);
}

}  // namespace

// Fills a data set file by file.
class LineDataset::Builder {
 public:
  Builder(const Tokenizer& tokenizer, const LineOptions& options, LineDataset& dataset)
      : tokenizer_(tokenizer),
        options_(options),
        cutoff_(options.cutoff_len == 0 ? options.context + 1 : options.cutoff_len),
        dataset_(dataset),
        bad_(options.on_error) {}

  BadData& bad() { return bad_; }

  absl::Status AddFile(const std::string& path) {
    absl::StatusOr<LineReader> reader = LineReader::Open(path, options_.most_line_bytes);
    if (!reader.ok()) return bad_.File(reader.status());
    bytes_ += reader->size();
    BRIGADE_RETURN_IF_ERROR(CheckDataBytes(path, bytes_));
    Line line;
    while (!is_full()) {
      const absl::StatusOr<bool> is_line = reader->Next(line);
      // What was read before stays.
      if (!is_line.ok()) return bad_.File(is_line.status());
      if (!*is_line) break;
      const std::optional<LineError> error = AddLine(line);
      if (!error.has_value()) continue;
      BRIGADE_RETURN_IF_ERROR(
          bad_.Line(absl::StrCat(Place(path, line.number, error->column), ": ", error->message)));
    }
    return absl::OkStatus();
  }

  bool is_full() const {
    return options_.max_samples > 0 && dataset_.lines() >= options_.max_samples;
  }

 private:
  std::optional<LineError> AddLine(const Line& line) {
    if (line.is_too_long) {
      return LineError{absl::StrCat("the line has more than ", options_.most_line_bytes, " bytes")};
    }
    if (absl::StripAsciiWhitespace(line.text).empty()) return std::nullopt;
    LineSample sample;
    if (std::optional<LineError> error = ParseLine(line.text, options_.keys, sample)) return error;
    return AddSample(sample);
  }

  std::optional<LineError> AddSample(const LineSample& sample) {
    ids_.clear();
    counted_.clear();
    const std::optional<int32_t> end = tokenizer_.end_of_text();
    absl::Status status;
    if (sample.text.has_value()) {
      Append(tokenizer_.before_text(), false);
      status = Encode({.text = *sample.text, .is_template = false, .counts = true});
      Append(tokenizer_.after_text(), true);
      if (end.has_value() && (ids_.empty() || ids_.back() != *end)) Append({*end}, true);
    } else {
      for (const ChatPart& part : options_.chat.Render(sample.turns)) {
        if (status.ok()) status = Encode(part);
        if (part.is_end && end.has_value()) Append({*end}, true);
      }
    }
    if (!status.ok()) return LineError{std::string(status.message())};
    return Keep();
  }

  absl::Status Encode(const ChatPart& part) {
    const int64_t begin = std::ssize(ids_);
    BRIGADE_RETURN_IF_ERROR(tokenizer_.Encode(
        part.text, part.is_template ? SpecialText::kIsToken : SpecialText::kIsText, ids_));
    Count(begin, part.counts);
    return absl::OkStatus();
  }
  void Append(absl::Span<const int32_t> ids, bool counts) {
    const int64_t begin = std::ssize(ids_);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    Count(begin, counts);
  }
  // The tokens from `begin` on.
  void Count(int64_t begin, bool counts) {
    const int64_t end = std::ssize(ids_);
    if (!counts || begin == end) return;
    if (!counted_.empty() && counted_.back().end == begin) {
      counted_.back().end = end;
    } else {
      counted_.push_back({begin, end});
    }
  }

  // Takes the line, up to the cutoff.
  std::optional<LineError> Keep() {
    const int64_t size = std::min(std::ssize(ids_), cutoff_);
    const int64_t first = dataset_.tokens_.size(), first_range = std::ssize(dataset_.counted_);
    int64_t labels = 0;
    for (const TokenRange& range : counted_) {
      // The first token is nobody's label.
      const int64_t begin = std::max<int64_t>(range.begin, 1), end = std::min(range.end, size);
      if (begin >= end) continue;
      labels += end - begin;
    }
    if (labels == 0) {
      return LineError{absl::StrCat("of the line's ", ids_.size(), " tokens none that counts is ",
                                    "among the first ", size)};
    }
    for (const TokenRange& range : counted_) {
      if (range.begin >= size) break;
      dataset_.counted_.push_back({first + range.begin, first + std::min(range.end, size)});
    }
    if (std::ssize(ids_) > size) ++dataset_.cut_;
    dataset_.tokens_.Append(absl::MakeConstSpan(ids_).subspan(0, static_cast<size_t>(size)));
    dataset_.lines_.push_back(
        {{first, first + size}, {first_range, std::ssize(dataset_.counted_)}, labels});
    return std::nullopt;
  }

  const Tokenizer& tokenizer_;
  const LineOptions& options_;
  const int64_t cutoff_;
  LineDataset& dataset_;
  BadData bad_;
  int64_t bytes_ = 0;
  // Of the line that is read.
  std::vector<int32_t> ids_;
  std::vector<TokenRange> counted_;
};

absl::StatusOr<std::unique_ptr<LineDataset>> LineDataset::Create(const std::string& path,
                                                                 const Tokenizer& tokenizer,
                                                                 const LineOptions& options) {
  BRIGADE_RETURN_IF_ERROR(Check(options));
  auto dataset = absl::WrapUnique(new LineDataset(options, tokenizer.vocabulary()));
  Builder builder(tokenizer, options, *dataset);
  BRIGADE_ASSIGN_OR_RETURN(const auto files, SourceFiles(path, ".jsonl", builder.bad()));
  for (const std::string& file : files) {
    if (builder.is_full()) break;
    BRIGADE_RETURN_IF_ERROR(builder.AddFile(file));
  }
  dataset->skipped_ = builder.bad().skipped();
  if (dataset->lines_.empty()) {
    const std::string skipped = dataset->skipped_.Text();
    return absl::InvalidArgumentError(absl::StrCat(ShownPath(path), " has no line to learn from",
                                                   skipped.empty() ? "" : "; ", skipped));
  }
  dataset->tokens_.ShrinkToFit();
  if (options.pack) {
    std::vector<int64_t> lengths;
    lengths.reserve(dataset->lines_.size());
    for (const Sample& line : dataset->lines_) {
      lengths.push_back(line.tokens.end - line.tokens.begin);
    }
    dataset->packs_ = PackBestFit(lengths, options.context + 1);
  }
  return dataset;
}

int64_t LineDataset::CountedLabels(int64_t sample) const {
  int64_t labels = 0;
  ForLines(sample, [&](const Sample& line) { labels += line.labels; });
  return labels;
}

absl::Status LineDataset::Read(int64_t sample, const Row& row) const {
  BRIGADE_RETURN_IF_ERROR(CheckRead(sample, row, *this));
  RowWriter writer(row);
  ForLines(sample, [&](const Sample& line) { writer.Add(tokens_, line.tokens, CountedOf(line)); });
  writer.Finish();
  return absl::OkStatus();
}

}  // namespace brigade::data
