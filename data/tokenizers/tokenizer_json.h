#ifndef BRIGADE_DATA_TOKENIZERS_TOKENIZER_JSON_H_
#define BRIGADE_DATA_TOKENIZERS_TOKENIZER_JSON_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/data/tokenizers/bpe_tokenizer.h"

namespace brigade::data {

// Hugging Face's tokenizer.json of a byte-level BPE: GPT-2, Llama 3, Qwen 2 (without its NFC) and
// what has their pre-tokenizers. Ids are those of `tokenizers` 0.20 and later.
//
//   model           BPE; merges as "a b" or ["a", "b"]; ignore_merges
//   pre_tokenizer   ByteLevel with its regex or without it, add_prefix_space; Split by a regex of
//                   SplitPattern, then ByteLevel without one
//   added_tokens    special, lstrip, rstrip, normalized
//   post_processor  ByteLevel, TemplateProcessing and RobertaProcessing for single texts: what
//                   stands around a text
//   truncation, padding  are not read: who takes the ids cuts and pads them
//
// Errors       InvalidArgument naming line and column, or key and value; Unimplemented for what
//              would change ids and is not supported: other models, normalizers, patterns, dropout,
//              single_word.
absl::StatusOr<std::unique_ptr<BpeTokenizer>> ParseTokenizerJson(absl::string_view text);

// The file; errors name it.
absl::StatusOr<std::unique_ptr<BpeTokenizer>> ReadTokenizerJson(const std::string& path);

// The text of such a file, with tokens in the order of ids. It is read back as the same tokenizer,
// but for end_of_text, for which such files have no place.
std::string TokenizerJson(const BpeTokenizer& tokenizer);
// Replaces the file as a whole. Errors of device::FileReplacement.
absl::Status WriteTokenizerJson(const BpeTokenizer& tokenizer, const std::string& path);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_TOKENIZER_JSON_H_
