#ifndef BRIGADE_DATA_TEXT_DATASET_H_
#define BRIGADE_DATA_TEXT_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/data/bad_data.h"
#include "brigade/data/dataset.h"
#include "brigade/data/row_writer.h"
#include "brigade/data/token_store.h"
#include "brigade/data/tokenizers/tokenizer.h"
#include "brigade/device/requirements.h"

namespace brigade::data {

struct TextOptions {
  // Positions of a sample.
  int64_t context = 0;
  // Of a folder the files whose names end so; empty: all.
  std::string ending = "";
  OnError on_error = OnError::kRefuse;
  // Windows that are taken, from the first on; 0: all.
  int64_t max_samples = 0;
  // Each document is a segment of its own: attention does not see the one before. Else a window is
  // one segment, as in GPT-2's training.
  bool separate_documents = false;
};

// Texts as one long row of tokens, each file a document with what the tokenizer puts around one and
// behind it the end of a text, if it has such a token; samples are windows of it, one behind the
// other: window i has the tokens i * context to (i + 1) * context, so each token but the first is a
// label once. The last window is padded.
//
// Memory       Tokens in 1, 2 or 4 bytes each.
// Bad data     Where the tokenizer wants UTF-8, a line that is not valid; a file that cannot be
//              read or is empty. Left out, a line is as if it were not there.
class TextDataset : public Dataset {
 public:
  // Errors of SourceFiles and of the tokenizer, naming file and line; InvalidArgument for a context
  // below 1, or if nothing of 2 tokens is left; ResourceExhausted as of CheckDataBytes.
  static absl::StatusOr<std::unique_ptr<TextDataset>> Create(const std::string& path,
                                                             const Tokenizer& tokenizer,
                                                             const TextOptions& options);

  int64_t size() const override { return size_; }
  int64_t context() const override { return context_; }
  int64_t vocabulary() const override { return tokens_.vocabulary(); }
  int64_t CountedLabels(int64_t sample) const override;
  absl::Status Read(int64_t sample, const Row& row) const override;

  int64_t tokens() const { return tokens_.size(); }
  int64_t documents() const { return std::ssize(documents_); }
  const Skipped& skipped() const { return skipped_; }

 private:
  TextDataset(const TextOptions& options, int64_t vocabulary)
      : context_(options.context), separate_(options.separate_documents), tokens_(vocabulary) {}

  TokenRange WindowOf(int64_t sample) const;
  // The documents of which parts are in a window: their first number, and behind the last one.
  TokenRange DocumentsOf(TokenRange window) const;

  int64_t context_;
  bool separate_;
  int64_t size_ = 0;
  TokenStore tokens_;
  // Where each begins.
  std::vector<int64_t> documents_;
  Skipped skipped_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TEXT_DATASET_H_
