#ifndef BRIGADE_DATA_LINE_DATASET_H_
#define BRIGADE_DATA_LINE_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/data/bad_data.h"
#include "brigade/data/chat_template.h"
#include "brigade/data/dataset.h"
#include "brigade/data/line_sample.h"
#include "brigade/data/row_writer.h"
#include "brigade/data/token_store.h"
#include "brigade/data/tokenizers/tokenizer.h"
#include "brigade/device/requirements.h"

namespace brigade::data {

struct LineOptions {
  // Positions of a sample.
  int64_t context = 0;
  // Tokens of a line that are kept, from its begin; 0: context + 1, as many as fit in a row.
  int64_t cutoff_len = 0;
  // Lines that are taken, from the first on; 0: all.
  int64_t max_samples = 0;
  // Several lines share a row, each a segment of its own: PackBestFit. Else a line is a row.
  bool pack = false;
  LineKeys keys = {};
  ChatTemplate chat = {};
  OnError on_error = OnError::kRefuse;
  // Longer lines are bad ones.
  int64_t most_line_bytes = 16 << 20;
};

// JSON lines: an object a line with a prompt and its answer, the messages of a chat, or a text. The
// loss counts on answers and what ends them alone; of a text on all of it. Each part of a line, the
// template's and the data's, is encoded by itself, so that an answer's tokens do not depend on the
// prompt before it; special tokens are tokens in the template's parts, and text in the data's.
//
// Memory       Tokens in 1, 2 or 4 bytes each, and about 60 bytes a line.
// Bad data     What is no JSON object with the keys; a line that is too long; one of which no token
//              counts, because the cutoff left none; a file that cannot be read. Lines of blanks
//              are none.
class LineDataset : public Dataset {
 public:
  // `path` is a file or a folder of files whose names end with .jsonl. Errors of SourceFiles;
  // InvalidArgument naming the option, or file, line and column; ResourceExhausted as of
  // CheckDataBytes.
  static absl::StatusOr<std::unique_ptr<LineDataset>> Create(const std::string& path,
                                                             const Tokenizer& tokenizer,
                                                             const LineOptions& options);

  // Rows.
  int64_t size() const override { return pack_ ? std::ssize(packs_) : lines(); }
  int64_t context() const override { return context_; }
  int64_t vocabulary() const override { return tokens_.vocabulary(); }
  int64_t CountedLabels(int64_t sample) const override;
  absl::Status Read(int64_t sample, const Row& row) const override;

  // Lines that were taken, their tokens, and how many of these were longer than the cutoff.
  int64_t lines() const { return std::ssize(lines_); }
  int64_t tokens() const { return tokens_.size(); }
  int64_t cut() const { return cut_; }
  const Skipped& skipped() const { return skipped_; }

 private:
  class Builder;

  struct Sample {
    TokenRange tokens = {};
    // Of counted_.
    TokenRange counted = {};
    int64_t labels = 0;
  };

  LineDataset(const LineOptions& options, int64_t vocabulary)
      : context_(options.context), pack_(options.pack), tokens_(vocabulary) {}

  absl::Span<const TokenRange> CountedOf(const Sample& line) const {
    return absl::MakeConstSpan(counted_).subspan(
        static_cast<size_t>(line.counted.begin),
        static_cast<size_t>(line.counted.end - line.counted.begin));
  }
  // Calls `each` with every line of a row.
  template <typename F>
  void ForLines(int64_t sample, F each) const {
    if (!pack_) return each(lines_[static_cast<size_t>(sample)]);
    for (const int64_t line : packs_[static_cast<size_t>(sample)]) {
      each(lines_[static_cast<size_t>(line)]);
    }
  }

  int64_t context_;
  bool pack_;
  TokenStore tokens_;
  std::vector<Sample> lines_;
  // Ranges of tokens whose loss counts.
  std::vector<TokenRange> counted_;
  std::vector<std::vector<int64_t>> packs_;
  int64_t cut_ = 0;
  Skipped skipped_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_LINE_DATASET_H_
