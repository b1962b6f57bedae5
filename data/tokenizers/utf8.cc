#include "brigade/data/tokenizers/utf8.h"

#include <cstring>

namespace brigade::data {
namespace {

// Bytes of the character at `p`, 0 if it is none. Source: Unicode 15.0, table 3-7.
size_t BytesOfCharacter(const uint8_t* p, size_t left) {
  const auto follows = [&](size_t i, uint8_t least = 0x80, uint8_t most = 0xbf) {
    return i < left && p[i] >= least && p[i] <= most;
  };
  const uint8_t first = p[0];
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  if (first < 0xe0) return follows(1) ? 2 : 0;
  if (first < 0xf0) {
    const uint8_t least = first == 0xe0 ? 0xa0 : 0x80, most = first == 0xed ? 0x9f : 0xbf;
    return follows(1, least, most) && follows(2) ? 3 : 0;
  }
  if (first > 0xf4) return 0;
  const uint8_t least = first == 0xf0 ? 0x90 : 0x80, most = first == 0xf4 ? 0x8f : 0xbf;
  return follows(1, least, most) && follows(2) && follows(3) ? 4 : 0;
}

}  // namespace

size_t ValidUtf8Prefix(absl::string_view text) {
  const auto* const p = reinterpret_cast<const uint8_t*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    // Most text is ASCII.
    uint64_t word;
    while (text.size() - at >= sizeof(word)) {
      std::memcpy(&word, p + at, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      at += sizeof(word);
    }
    if (at == text.size()) break;
    const size_t bytes = BytesOfCharacter(p + at, text.size() - at);
    if (bytes == 0) return at;
    at += bytes;
  }
  return at;
}

void AppendUtf8(uint32_t code, std::string& text) {
  const auto add = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xe0 | code >> 12);
    } else {
      add(0xf0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3f));
    }
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

}  // namespace brigade::data
