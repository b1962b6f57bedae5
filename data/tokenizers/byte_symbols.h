#ifndef BRIGADE_DATA_TOKENIZERS_BYTE_SYMBOLS_H_
#define BRIGADE_DATA_TOKENIZERS_BYTE_SYMBOLS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace brigade::data {

// How byte-level tokenizers write a byte in their files: as a printable character, so that a token
// is text whatever bytes it has. Bytes that Latin-1 prints are themselves, the others are U+0100
// and up in ascending order: a blank is U+0120. Source: GPT-2's bytes_to_unicode, 2019.
uint32_t SymbolOfByte(uint8_t byte);

// The token of these bytes.
std::string SymbolsOf(absl::string_view bytes);
// The bytes of a token; none if a character of it stands for no byte, or it is not valid UTF-8.
std::optional<std::string> BytesOf(absl::string_view symbols);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_BYTE_SYMBOLS_H_
