#include "brigade/data/tokenizers/unicode_classes.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "brigade/data/tokenizers/unicode_ranges.h"

namespace brigade::data {
namespace {

// Blocks of 256 codes, of which most are like another one: 50 KB in place of 1.1 MB.
class ClassTable {
 public:
  ClassTable() {
    std::vector<CharacterClass> all(kCodes, CharacterClass::kOther);
    const auto set = [&](absl::Span<const CodeRange> ranges, CharacterClass value) {
      for (const CodeRange& range : ranges) {
        for (uint32_t code = range.first; code <= range.last; ++code) all[code] = value;
      }
    };
    set(LetterRanges(), CharacterClass::kLetter);
    set(NumberRanges(), CharacterClass::kNumber);
    // Unicode's PropList.txt; they have not changed since version 6.3.
    constexpr CodeRange kSpaces[] = {
        {0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
        {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
    set(kSpaces, CharacterClass::kSpace);
    for (size_t block = 0; block < kCodes / kBlock; ++block) {
      block_of_[block] = static_cast<uint16_t>(Place(all.data() + block * kBlock));
    }
  }

  CharacterClass Of(uint32_t code) const {
    return classes_[block_of_[code / kBlock] * kBlock + code % kBlock];
  }

 private:
  static constexpr size_t kCodes = 0x110000, kBlock = 256;

  // The number of a block like this one, which may be new.
  size_t Place(const CharacterClass* block) {
    for (size_t i = 0; i < classes_.size(); i += kBlock) {
      if (std::memcmp(classes_.data() + i, block, kBlock) == 0) return i / kBlock;
    }
    classes_.insert(classes_.end(), block, block + kBlock);
    return classes_.size() / kBlock - 1;
  }

  uint16_t block_of_[kCodes / kBlock];
  std::vector<CharacterClass> classes_;
};

}  // namespace

CharacterClass ClassBeyondAscii(uint32_t code) {
  // Lives as long as the process.
  static const ClassTable& table = *new ClassTable;
  return table.Of(code);
}

}  // namespace brigade::data
