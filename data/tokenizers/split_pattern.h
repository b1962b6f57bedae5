#ifndef BRIGADE_DATA_TOKENIZERS_SPLIT_PATTERN_H_
#define BRIGADE_DATA_TOKENIZERS_SPLIT_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace brigade::data {

// How a text is cut into pieces before byte pairs are merged in each: the regular expressions of
// published tokenizers, each as a scanner that goes over the text once (decision 0240).
enum class SplitPattern : uint8_t {
  // The text is one piece.
  kNone,
  kGpt2,
  // Llama 3's, and OpenAI's cl100k_base.
  kLlama3,
  // As Llama 3's, but each digit is a piece.
  kQwen2,
};

// The regular expression as tokenizer.json has it; empty of kNone.
absl::string_view RegexOf(SplitPattern pattern);
// The pattern of a regular expression; none if it is another one.
std::optional<SplitPattern> PatternOf(absl::string_view regex);

// Where the piece that begins at `begin` ends. `text` is valid UTF-8 and begin < text.size(). The
// piece is what the first of the expression's alternatives that matches there takes; every
// character is in one piece.
size_t PieceEnd(SplitPattern pattern, absl::string_view text, size_t begin);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_SPLIT_PATTERN_H_
