#include "brigade/models/module_pattern.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::models {

// By recursive descent, into the states of Thompson 1968. A fragment is built from its end to its
// begin: each piece is told where it leads.
class ModulePatternParser {
 public:
  explicit ModulePatternParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<ModulePattern> Parse() {
    ModulePattern pattern;
    BRIGADE_ASSIGN_OR_RETURN(const Tree tree, Alternatives(0));
    if (at_ != text_.size()) return Error("a ) without its (");
    const int accept = New(ModulePattern::State::Kind::kAccept);
    pattern.start_ = Build(tree, accept);
    if (too_many_) {
      return absl::InvalidArgumentError(absl::StrCat("the pattern ", device::Quoted(text_, 100),
                                                     " has more than ", ModulePattern::kMostStates,
                                                     " states"));
    }
    pattern.states_ = std::move(states_);
    return pattern;
  }

 private:
  static constexpr int kMostDepth = 50;
  static constexpr int kMostRepeats = 1000;

  using Characters = std::bitset<128>;
  // What is read, before it becomes states, as often as it is repeated.
  struct Tree {
    enum class Kind : uint8_t { kCharacter, kSequence, kChoice, kRepeat } kind = Kind::kSequence;
    Characters characters = {};
    std::vector<Tree> parts = {};
    int least = 1;
    // Nothing: without end.
    std::optional<int> most = 1;
  };

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("the pattern ", device::Quoted(text_, 100),
                                                   ", character ", at_ + 1, ": ", what));
  }
  bool Sees(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool Takes(char c) {
    if (!Sees(c)) return false;
    ++at_;
    return true;
  }

  absl::StatusOr<Tree> Alternatives(int depth) {
    if (depth > kMostDepth) return Error("groups within each other, more than 50");
    Tree choice = {.kind = Tree::Kind::kChoice};
    do {
      BRIGADE_ASSIGN_OR_RETURN(Tree sequence, Sequence(depth));
      choice.parts.push_back(std::move(sequence));
    } while (Takes('|'));
    return choice;
  }

  absl::StatusOr<Tree> Sequence(int depth) {
    Tree sequence = {.kind = Tree::Kind::kSequence};
    while (at_ < text_.size() && !Sees('|') && !Sees(')')) {
      BRIGADE_ASSIGN_OR_RETURN(Tree piece, Piece(depth));
      BRIGADE_ASSIGN_OR_RETURN(piece, Repeated(std::move(piece)));
      sequence.parts.push_back(std::move(piece));
    }
    return sequence;
  }

  absl::StatusOr<Tree> Piece(int depth) {
    const char c = text_[at_];
    if (Takes('(')) {
      if (Takes('?') && !Takes(':')) return Error("of (?...) only (?:...) is supported");
      BRIGADE_ASSIGN_OR_RETURN(Tree inner, Alternatives(depth + 1));
      if (!Takes(')')) return Error("a ( without its )");
      return inner;
    }
    if (c == '[') return Class();
    if (c == '\\') {
      BRIGADE_ASSIGN_OR_RETURN(const Characters characters, Escaped());
      return Tree{.kind = Tree::Kind::kCharacter, .characters = characters};
    }
    if (c == '^' || c == '$') return Error("^ and $ are not supported: all of a name is matched");
    if (c == '*' || c == '+' || c == '?' || c == '{') return Error("nothing to repeat");
    Characters characters;
    if (c == '.') {
      characters.set().reset('\n');
    } else {
      BRIGADE_RETURN_IF_ERROR(Put(c, characters));
    }
    ++at_;
    return Tree{.kind = Tree::Kind::kCharacter, .characters = characters};
  }

  absl::Status Put(char c, Characters& characters) const {
    if (static_cast<unsigned char>(c) >= 128) return Error("only ASCII is supported");
    characters.set(static_cast<size_t>(c));
    return absl::OkStatus();
  }

  static Characters Range(char first, char last) {
    Characters characters;
    for (int c = first; c <= last; ++c) characters.set(static_cast<size_t>(c));
    return characters;
  }

  // Behind a backslash.
  absl::StatusOr<Characters> Escaped() {
    ++at_;
    if (at_ == text_.size()) return Error("nothing behind a backslash");
    const char c = text_[at_];
    const Characters digits = Range('0', '9');
    const Characters letters = Range('a', 'z') | Range('A', 'Z');
    Characters words = digits | letters, blanks = Range('\t', '\r') | Range(28, 31);
    words.set('_');
    blanks.set(' ');
    Characters characters;
    switch (c) {
      case 'd':
        characters = digits;
        break;
      case 'D':
        characters = ~digits;
        break;
      case 'w':
        characters = words;
        break;
      case 'W':
        characters = ~words;
        break;
      case 's':
        characters = blanks;
        break;
      case 'S':
        characters = ~blanks;
        break;
      default:
        BRIGADE_RETURN_IF_ERROR(Put(c, characters));
        if ((letters | digits).test(static_cast<size_t>(c))) {
          return Error("of escaped letters only \\d \\w \\s \\D \\W \\S are supported");
        }
    }
    ++at_;
    return characters;
  }

  absl::StatusOr<Tree> Class() {
    ++at_;
    const bool negated = Takes('^');
    Characters characters;
    // A ] that is first is one of the characters.
    for (bool first = true; first || !Sees(']'); first = false) {
      if (at_ == text_.size()) return Error("a [ without its ]");
      if (Sees('\\')) {
        BRIGADE_ASSIGN_OR_RETURN(const Characters escaped, Escaped());
        characters |= escaped;
        continue;
      }
      const char low = text_[at_];
      BRIGADE_RETURN_IF_ERROR(Put(low, characters));
      ++at_;
      if (!Sees('-') || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') continue;
      ++at_;
      const char high = text_[at_];
      BRIGADE_RETURN_IF_ERROR(Put(high, characters));
      if (high < low || high == '\\') return Error("a range that ends before it begins");
      characters |= Range(low, high);
      ++at_;
    }
    ++at_;
    return Tree{.kind = Tree::Kind::kCharacter, .characters = negated ? ~characters : characters};
  }

  absl::StatusOr<int> Number() {
    int number = 0;
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      number = number * 10 + (text_[at_] - '0');
      if (number > kMostRepeats) return Error("a repetition of more than 1000");
      ++at_;
    }
    if (at_ == begin) return Error("{ begins no repetition; write \\{");
    return number;
  }

  absl::StatusOr<Tree> Repeated(Tree piece) {
    Tree repeat = {.kind = Tree::Kind::kRepeat};
    if (Takes('*')) {
      repeat.least = 0;
      repeat.most.reset();
    } else if (Takes('+')) {
      repeat.most.reset();
    } else if (Takes('?')) {
      repeat.least = 0;
    } else if (Takes('{')) {
      BRIGADE_ASSIGN_OR_RETURN(repeat.least, Number());
      repeat.most = repeat.least;
      if (Takes(',')) {
        repeat.most.reset();
        if (!Sees('}')) {
          BRIGADE_ASSIGN_OR_RETURN(const int most, Number());
          repeat.most = most;
        }
      }
      if (!Takes('}')) return Error("a { without its }");
      if (repeat.most.has_value() && *repeat.most < repeat.least) {
        return Error("a repetition whose most is below its least");
      }
    } else {
      return piece;
    }
    // As few as possible: of a match of the whole it makes no difference.
    Takes('?');
    if (Sees('*') || Sees('+') || Sees('?') || Sees('{')) return Error("repeated twice");
    repeat.parts.push_back(std::move(piece));
    return repeat;
  }

  int New(ModulePattern::State::Kind kind) {
    if (static_cast<int64_t>(states_.size()) >= ModulePattern::kMostStates) {
      too_many_ = true;
      return 0;
    }
    states_.push_back({.kind = kind});
    return static_cast<int>(states_.size()) - 1;
  }
  ModulePattern::State& At(int state) { return states_[static_cast<size_t>(state)]; }

  // The first state of the tree, which leads to `next`.
  int Build(const Tree& tree, int next) {
    using Kind = ModulePattern::State::Kind;
    // Repetitions of nothing make no states.
    too_many_ |= ++built_ > 10 * ModulePattern::kMostStates;
    if (too_many_) return 0;
    switch (tree.kind) {
      case Tree::Kind::kCharacter: {
        const int state = New(Kind::kCharacter);
        if (too_many_) return 0;
        At(state).characters = tree.characters;
        At(state).next[0] = next;
        return state;
      }
      case Tree::Kind::kSequence:
        for (size_t i = tree.parts.size(); i > 0; --i) next = Build(tree.parts[i - 1], next);
        return next;
      case Tree::Kind::kChoice: {
        int first = Build(tree.parts.back(), next);
        for (size_t i = tree.parts.size() - 1; i > 0; --i) {
          const int other = Build(tree.parts[i - 1], next);
          const int split = New(Kind::kSplit);
          if (too_many_) return 0;
          At(split).next = {other, first};
          first = split;
        }
        return first;
      }
      case Tree::Kind::kRepeat:
        return BuildRepeat(tree, next);
    }
    return next;
  }

  int BuildRepeat(const Tree& tree, int next) {
    using Kind = ModulePattern::State::Kind;
    const Tree& part = tree.parts.front();
    if (!tree.most.has_value()) {
      const int loop = New(Kind::kSplit);
      if (too_many_) return 0;
      const int again = Build(part, loop);
      if (too_many_) return 0;
      At(loop).next = {again, next};
      next = loop;
    } else {
      const int behind = next;
      for (int i = tree.least; i < *tree.most && !too_many_; ++i) {
        const int inner = Build(part, next);
        const int split = New(Kind::kSplit);
        if (too_many_) return 0;
        At(split).next = {inner, behind};
        next = split;
      }
    }
    for (int i = 0; i < tree.least && !too_many_; ++i) next = Build(part, next);
    return next;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  std::vector<ModulePattern::State> states_;
  int64_t built_ = 0;
  bool too_many_ = false;
};

absl::StatusOr<ModulePattern> ModulePattern::Parse(absl::string_view pattern) {
  return ModulePatternParser(pattern).Parse();
}

void ModulePattern::Add(int state, std::vector<bool>& set) const {
  std::vector<int> open = {state};
  while (!open.empty()) {
    const int now = open.back();
    open.pop_back();
    if (now == kNone || set[static_cast<size_t>(now)]) continue;
    set[static_cast<size_t>(now)] = true;
    const State& at = states_[static_cast<size_t>(now)];
    if (at.kind == State::Kind::kSplit) open.insert(open.end(), at.next.begin(), at.next.end());
  }
}

bool ModulePattern::Matches(absl::string_view name) const {
  std::vector<bool> set(states_.size());
  Add(start_, set);
  for (const char c : name) {
    std::vector<bool> next(states_.size());
    for (size_t s = 0; s < states_.size(); ++s) {
      const State& state = states_[s];
      if (set[s] && state.kind == State::Kind::kCharacter && static_cast<unsigned char>(c) < 128 &&
          state.characters.test(static_cast<size_t>(c))) {
        Add(state.next[0], next);
      }
    }
    set = std::move(next);
  }
  for (size_t s = 0; s < states_.size(); ++s) {
    if (set[s] && states_[s].kind == State::Kind::kAccept) return true;
  }
  return false;
}

}  // namespace brigade::models
