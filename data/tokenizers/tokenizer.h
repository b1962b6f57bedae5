#ifndef BRIGADE_DATA_TOKENIZERS_TOKENIZER_H_
#define BRIGADE_DATA_TOKENIZERS_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace brigade::data {

// What becomes of "<|endoftext|>" and other special tokens that are written in a text.
enum class SpecialText : uint8_t {
  // The token: in text that the program writes, as a template of a chat.
  kIsToken,
  // Text like any other: in what comes from outside, which could else end a turn or begin one.
  kIsText,
};

// Text to ids, and back.
//
// Threads      Any number may call at once.
// Determinism  The same ids on all machines.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids are below it.
  virtual int64_t vocabulary() const = 0;

  // Appends the ids of `text`. InvalidArgument naming the byte: text that is not valid UTF-8, where
  // the tokenizer is one of characters, or a byte without a token; `ids` is then as before.
  virtual absl::Status Encode(absl::string_view text, SpecialText special,
                              std::vector<int32_t>& ids) const = 0;
  // Appends the bytes of `ids`, special tokens as they are written. InvalidArgument naming an id
  // that is no token's.
  virtual absl::Status Decode(absl::Span<const int32_t> ids, std::string& text) const = 0;

  // Whether a byte is a token whatever stands around it: Encode then takes bytes that are not valid
  // UTF-8, and of a text in pieces gives the same ids.
  virtual bool is_bytewise() const = 0;
  // Of a special token by its text.
  virtual std::optional<int32_t> IdOf(absl::string_view special_token) const = 0;
  // The token that ends a document; none has one.
  virtual std::optional<int32_t> end_of_text() const = 0;
  // What the tokenizer's file puts around a whole text, as Llama 3 its <|begin_of_text|>.
  virtual absl::Span<const int32_t> before_text() const { return {}; }
  virtual absl::Span<const int32_t> after_text() const { return {}; }
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_TOKENIZER_H_
