#ifndef BRIGADE_DATA_TOKENIZERS_BYTE_TOKENIZER_H_
#define BRIGADE_DATA_TOKENIZERS_BYTE_TOKENIZER_H_

#include "brigade/data/tokenizers/tokenizer.h"

namespace brigade::data {

// Each byte is its own id. There are no special tokens, so nothing ends a document.
class ByteTokenizer : public Tokenizer {
 public:
  int64_t vocabulary() const override { return 256; }
  absl::Status Encode(absl::string_view text, SpecialText special,
                      std::vector<int32_t>& ids) const override;
  absl::Status Decode(absl::Span<const int32_t> ids, std::string& text) const override;
  bool is_bytewise() const override { return true; }
  std::optional<int32_t> IdOf(absl::string_view) const override { return std::nullopt; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_BYTE_TOKENIZER_H_
