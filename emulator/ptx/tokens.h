#ifndef BRIGADE_EMULATOR_PTX_TOKENS_H_
#define BRIGADE_EMULATOR_PTX_TOKENS_H_

// The words of PTX.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::emulator {

struct Token {
  absl::string_view text;
  int line = 0;
};

// Words (names, numbers and directives), strings in quotes, and single other characters, without
// comments. InvalidArgument, with file and line, for a comment or a string that does not end.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view text, absl::string_view file);

// Of an integer, or the bits of a floating-point number; nothing for what is no number, or none of
// 64 bits.
std::optional<uint64_t> ParseNumber(absl::string_view word);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_TOKENS_H_
