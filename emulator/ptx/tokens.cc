#include "brigade/emulator/ptx/tokens.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace brigade::emulator {
namespace {

bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view text, absl::string_view file) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    size_t end = i + 1;
    if (c == '\n') {
      ++line;
    } else if (absl::StartsWith(text.substr(i), "//")) {
      end = std::min(text.find('\n', i), text.size());
    } else if (absl::StartsWith(text.substr(i), "/*")) {
      end = text.find("*/", i + 2);
      if (end == absl::string_view::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat(file, ":", line, ": the comment does not end"));
      }
      end += 2;
      line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(i),
                                          text.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    } else if (c == '"') {
      end = text.find_first_of("\"\n", i + 1);
      if (end == absl::string_view::npos || text[end] == '\n') {
        return absl::InvalidArgumentError(
            absl::StrCat(file, ":", line, ": the string does not end"));
      }
      ++end;
      tokens.push_back({text.substr(i, end - i), line});
    } else if (IsWordCharacter(c)) {
      // ld.shared::cta is one word.
      while (end < text.size() &&
             (IsWordCharacter(text[end]) || absl::StartsWith(text.substr(end), "::") ||
              absl::EndsWith(text.substr(i, end + 1 - i), "::"))) {
        ++end;
      }
      tokens.push_back({text.substr(i, end - i), line});
    } else if (!absl::ascii_isspace(static_cast<unsigned char>(c))) {
      tokens.push_back({text.substr(i, 1), line});
    }
    i = end;
  }
  return tokens;
}

std::optional<uint64_t> ParseNumber(absl::string_view word) {
  if (word.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(word.front()))) {
    return std::nullopt;
  }
  uint64_t value = 0;
  if (word.size() == 10 && (absl::StartsWith(word, "0f") || absl::StartsWith(word, "0F"))) {
    return absl::SimpleHexAtoi(word.substr(2), &value) ? std::optional(value) : std::nullopt;
  }
  if (word.size() == 18 && (absl::StartsWith(word, "0d") || absl::StartsWith(word, "0D"))) {
    return absl::SimpleHexAtoi(word.substr(2), &value) ? std::optional(value) : std::nullopt;
  }
  absl::ConsumeSuffix(&word, "U");
  if (absl::StartsWith(word, "0x") || absl::StartsWith(word, "0X")) {
    return absl::SimpleHexAtoi(word, &value) ? std::optional(value) : std::nullopt;
  }
  return absl::SimpleAtoi(word, &value) ? std::optional(value) : std::nullopt;
}

}  // namespace brigade::emulator
