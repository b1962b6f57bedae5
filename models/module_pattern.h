#ifndef BRIGADE_MODELS_MODULE_PATTERN_H_
#define BRIGADE_MODELS_MODULE_PATTERN_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::models {

// A regular expression that names of modules match as a whole, as PEFT's target_modules of one
// string: what Python's re.fullmatch and this know alike.
//
//   x  .  [abc]  [^a-z]  \d \w \s \D \W \S  \. and other escaped signs   one character
//   (ab|c)  (?:ab|c)  * + ? {2} {2,} {2,5}, each with ? behind it        pieces
//
// Cost         By a set of states: at most the pattern's size times the name's, whatever they are.
// Errors       InvalidArgument naming the place: what else Python knows (^ $ \b, look-around,
//              back-references, flags), what is no pattern, one with more than kMostStates states,
//              and characters that are not ASCII.
class ModulePattern {
 public:
  static constexpr int64_t kMostStates = 10'000;

  static absl::StatusOr<ModulePattern> Parse(absl::string_view pattern);

  bool Matches(absl::string_view name) const;

 private:
  friend class ModulePatternParser;

  struct State {
    // kCharacter: one of `characters` leads to next[0]. kSplit: both of `next`, without a
    // character; either may be kNone. kAccept: the name may end here.
    enum class Kind : uint8_t { kCharacter, kSplit, kAccept } kind = Kind::kSplit;
    std::bitset<128> characters = {};
    std::array<int, 2> next = {kNone, kNone};
  };
  static constexpr int kNone = -1;

  void Add(int state, std::vector<bool>& set) const;

  std::vector<State> states_;
  int start_ = 0;
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_MODULE_PATTERN_H_
