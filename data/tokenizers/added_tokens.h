#ifndef BRIGADE_DATA_TOKENIZERS_ADDED_TOKENS_H_
#define BRIGADE_DATA_TOKENIZERS_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "brigade/data/tokenizers/tokenizer.h"

namespace brigade::data {

// A token that is found in a text as it is written, before the text is cut into pieces.
struct AddedToken {
  int32_t id = 0;
  std::string content = {};
  // Not found where a text's special tokens are text.
  bool special = true;
  // It takes the blanks before it, or behind it.
  bool lstrip = false;
  bool rstrip = false;
  // It is looked for after those that are not: in what these leave.
  bool normalized = false;
};

// Finds added tokens in a text: the leftmost, and of several that begin there the longest.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Contents are not empty, and there is none twice.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  const std::vector<AddedToken>& all() const { return tokens_; }
  // Null: there is none.
  const AddedToken* Find(absl::string_view content) const;

  // What a text consists of: pieces of text, and between them tokens, in order. `token` is null for
  // text, which is not empty.
  using Part = absl::FunctionRef<void(absl::string_view text, const AddedToken* token)>;
  void Cut(absl::string_view text, SpecialText special, Part part) const;

 private:
  // Those that are looked for at once.
  struct Group {
    // By content; lengths that there are, longest first, and the bytes with which one begins.
    absl::flat_hash_map<std::string, size_t> by_content;
    std::vector<size_t> lengths;
    std::array<bool, 256> begins = {};
  };

  const AddedToken* TokenAt(const Group& group, absl::string_view text, size_t at) const;
  void CutGroup(const Group& group, absl::string_view text, SpecialText special, Part part) const;

  std::vector<AddedToken> tokens_;
  Group first_, second_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_ADDED_TOKENS_H_
