#ifndef BRIGADE_DATA_TOKENIZER_TEXT_H_
#define BRIGADE_DATA_TOKENIZER_TEXT_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/data/bad_data.h"
#include "brigade/data/line_sample.h"

namespace brigade::data {

// Calls `each` with all text of a data set, from which a tokenizer is learned: whole files, and of
// files that end with .jsonl what is said in their lines. `path` is a file or a folder.
//
// Errors       Those of SourceFiles; of `each`, with the file and, of JSON lines, the line; of
//              files and lines as of TextDataset and LineDataset, by `bad`.
absl::Status ForTexts(const std::string& path, const LineKeys& keys, BadData& bad,
                      absl::FunctionRef<absl::Status(absl::string_view text)> each);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZER_TEXT_H_
