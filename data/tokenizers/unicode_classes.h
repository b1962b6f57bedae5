#ifndef BRIGADE_DATA_TOKENIZERS_UNICODE_CLASSES_H_
#define BRIGADE_DATA_TOKENIZERS_UNICODE_CLASSES_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace brigade::data {

// What the patterns of tokenizers tell apart.
enum class CharacterClass : uint8_t {
  kOther,
  // \p{L} and \p{N}: Unicode's general categories.
  kLetter,
  kNumber,
  // \s: Unicode's property White_Space.
  kSpace,
};

inline constexpr std::array<CharacterClass, 128> kAsciiClasses = [] {
  std::array<CharacterClass, 128> classes = {};
  for (int c = 0; c < 128; ++c) {
    const bool is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    const bool is_space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[static_cast<size_t>(c)] = is_letter              ? CharacterClass::kLetter
                                      : c >= '0' && c <= '9' ? CharacterClass::kNumber
                                      : is_space             ? CharacterClass::kSpace
                                                             : CharacterClass::kOther;
  }
  return classes;
}();

// Of a code that is not ASCII.
CharacterClass ClassBeyondAscii(uint32_t code);

// Of any code, by the table of this version of Unicode, whatever the machine has (decision 0240).
inline constexpr char kUnicodeVersion[] = "16.0";
inline CharacterClass ClassOf(uint32_t code) {
  return code < 128 ? kAsciiClasses[code] : ClassBeyondAscii(code);
}

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_UNICODE_CLASSES_H_
