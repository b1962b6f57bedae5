#ifndef BRIGADE_DATA_TOKENIZERS_UTF8_H_
#define BRIGADE_DATA_TOKENIZERS_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace brigade::data {

// The number of bytes at the begin of `text` that are whole characters of valid UTF-8: no overlong
// forms, no surrogates, none above U+10FFFF. text.size() if all is.
size_t ValidUtf8Prefix(absl::string_view text);

struct Character {
  uint32_t code = 0;
  // Of its UTF-8.
  size_t bytes = 0;
};

// The character at `text[at]`, of text that is valid.
inline Character CharacterAt(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(text[at + i]));
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first < 0xf0) {
    return {(first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  }
  return {(first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f),
          4};
}

// Where the character before `text[at]` begins; at > 0.
inline size_t CharacterBefore(absl::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<uint8_t>(text[at]) & 0xc0) == 0x80);
  return at;
}

// Appends the UTF-8 of a code up to 0x10ffff.
void AppendUtf8(uint32_t code, std::string& text);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_UTF8_H_
