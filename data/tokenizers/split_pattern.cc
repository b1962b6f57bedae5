#include "brigade/data/tokenizers/split_pattern.h"

#include "brigade/data/tokenizers/unicode_classes.h"
#include "brigade/data/tokenizers/utf8.h"

namespace brigade::data {
namespace {

using enum CharacterClass;

constexpr absl::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A character with its class.
struct Classified {
  CharacterClass kind = kOther;
  size_t bytes = 0;
};

Classified At(absl::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return {kAsciiClasses[byte], 1};
  const Character character = CharacterAt(text, at);
  return {ClassBeyondAscii(character.code), character.bytes};
}

// Behind the characters of a class from `at` on.
size_t EndOfRun(absl::string_view text, size_t at, CharacterClass kind) {
  while (at < text.size()) {
    const Classified next = At(text, at);
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

bool IsNewline(char c) { return c == '\r' || c == '\n'; }

// Of 's, 't, 're, 've, 'm, 'll, 'd behind an apostrophe at `at`; 0 if there is none. Where case
// does not count, Unicode's folding takes U+017F, the long s, for an s.
size_t BytesOfContraction(absl::string_view text, size_t at, bool any_case) {
  const auto letter = [&](size_t i) -> char {
    if (at + i >= text.size()) return 0;
    const char c = text[at + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (any_case && text.substr(at + 1, 2) == "\u017f") return 3;
  const bool has_two =
      ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return has_two ? 3 : 0;
}

// `\s+(?!\S)|\s+` of blanks from `begin` to `end`: all that end the text; before something else all
// but the last one, which may belong to that, unless it is the only one.
size_t EndOfBlanks(absl::string_view text, size_t begin, size_t end) {
  if (end == text.size()) return end;
  const size_t last = CharacterBefore(text, end);
  return last > begin ? last : end;
}

size_t Gpt2End(absl::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    const size_t bytes = BytesOfContraction(text, begin, false);
    if (bytes > 0) return begin + bytes;
  }
  // ` ?` before each of the next three alternatives.
  size_t at = begin;
  if (text[begin] == ' ' && begin + 1 < text.size()) ++at;
  const Classified next = At(text, at);
  if (next.kind != kSpace) return EndOfRun(text, at + next.bytes, next.kind);
  return EndOfBlanks(text, begin, EndOfRun(text, begin, kSpace));
}

size_t Llama3End(absl::string_view text, size_t begin, int most_digits) {
  const char c = text[begin];
  if (c == '\'') {
    const size_t bytes = BytesOfContraction(text, begin, true);
    if (bytes > 0) return begin + bytes;
  }
  // `[^\r\n\p{L}\p{N}]?\p{L}+`
  const Classified first = At(text, begin);
  const size_t behind = begin + first.bytes;
  if (first.kind == kLetter) return EndOfRun(text, behind, kLetter);
  if (first.kind != kNumber && !IsNewline(c) && behind < text.size()) {
    const Classified second = At(text, behind);
    if (second.kind == kLetter) return EndOfRun(text, behind + second.bytes, kLetter);
  }
  if (first.kind == kNumber) {
    size_t at = behind;
    for (int digits = 1; digits < most_digits && at < text.size(); ++digits) {
      const Classified next = At(text, at);
      if (next.kind != kNumber) break;
      at += next.bytes;
    }
    return at;
  }
  // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
  size_t at = begin;
  if (c == ' ' && begin + 1 < text.size()) ++at;
  if (At(text, at).kind == kOther) {
    at = EndOfRun(text, at, kOther);
    while (at < text.size() && IsNewline(text[at])) ++at;
    return at;
  }
  // `\s*[\r\n]+`: up to the last newline among the blanks.
  const size_t end = EndOfRun(text, begin, kSpace);
  for (size_t last = end; last > begin; --last) {
    if (IsNewline(text[last - 1])) return last;
  }
  return EndOfBlanks(text, begin, end);
}

}  // namespace

absl::string_view RegexOf(SplitPattern pattern) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return kGpt2Regex;
    case SplitPattern::kLlama3:
      return kLlama3Regex;
    case SplitPattern::kQwen2:
      return kQwen2Regex;
    case SplitPattern::kNone:
      break;
  }
  return "";
}

std::optional<SplitPattern> PatternOf(absl::string_view regex) {
  for (const SplitPattern pattern :
       {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2}) {
    if (RegexOf(pattern) == regex) return pattern;
  }
  return std::nullopt;
}

size_t PieceEnd(SplitPattern pattern, absl::string_view text, size_t begin) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return Gpt2End(text, begin);
    case SplitPattern::kLlama3:
      return Llama3End(text, begin, 3);
    case SplitPattern::kQwen2:
      return Llama3End(text, begin, 1);
    case SplitPattern::kNone:
      break;
  }
  return text.size();
}

}  // namespace brigade::data
