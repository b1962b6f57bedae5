#include "brigade/data/tokenizers/byte_tokenizer.h"

#include "absl/strings/str_cat.h"

namespace brigade::data {

absl::Status ByteTokenizer::Encode(absl::string_view text, SpecialText,
                                   std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return absl::OkStatus();
}

absl::Status ByteTokenizer::Decode(absl::Span<const int32_t> ids, std::string& text) const {
  for (const int32_t id : ids) {
    if (id < 0 || id > 255) {
      return absl::InvalidArgumentError(absl::StrCat("id ", id, " is no byte, which are 0 to 255"));
    }
    text.push_back(static_cast<char>(id));
  }
  return absl::OkStatus();
}

}  // namespace brigade::data
