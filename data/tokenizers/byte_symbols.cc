#include "brigade/data/tokenizers/byte_symbols.h"

#include <array>

#include "brigade/data/tokenizers/utf8.h"

namespace brigade::data {
namespace {

constexpr bool IsItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// The symbol of each byte, and the byte of each symbol or -1.
struct Tables {
  std::array<uint16_t, 256> symbols = {};
  std::array<int16_t, 0x144> bytes = {};

  constexpr Tables() {
    for (int16_t& byte : bytes) byte = -1;
    uint16_t next = 0x100;
    for (uint16_t byte = 0; byte < 256; ++byte) {
      const uint16_t symbol = IsItself(byte) ? byte : next++;
      symbols[byte] = symbol;
      bytes[symbol] = static_cast<int16_t>(byte);
    }
  }
};
constexpr Tables kTables;

}  // namespace

uint32_t SymbolOfByte(uint8_t byte) { return kTables.symbols[byte]; }

std::string SymbolsOf(absl::string_view bytes) {
  std::string symbols;
  for (const char byte : bytes) AppendUtf8(SymbolOfByte(static_cast<uint8_t>(byte)), symbols);
  return symbols;
}

std::optional<std::string> BytesOf(absl::string_view symbols) {
  if (ValidUtf8Prefix(symbols) != symbols.size()) return std::nullopt;
  std::string bytes;
  for (size_t at = 0; at < symbols.size();) {
    const Character symbol = CharacterAt(symbols, at);
    if (symbol.code >= kTables.bytes.size() || kTables.bytes[symbol.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kTables.bytes[symbol.code]));
    at += symbol.bytes;
  }
  return bytes;
}

}  // namespace brigade::data
