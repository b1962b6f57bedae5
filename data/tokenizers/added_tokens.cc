#include "brigade/data/tokenizers/added_tokens.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "brigade/data/tokenizers/unicode_classes.h"
#include "brigade/data/tokenizers/utf8.h"

namespace brigade::data {
namespace {

// Where the blanks begin that end at `end`, not before `least`.
size_t BeginOfBlanks(absl::string_view text, size_t least, size_t end) {
  while (end > least) {
    const size_t before = CharacterBefore(text, end);
    if (before < least) break;
    if (ClassOf(CharacterAt(text, before).code) != CharacterClass::kSpace) break;
    end = before;
  }
  return end;
}

size_t EndOfBlanks(absl::string_view text, size_t at) {
  while (at < text.size()) {
    const Character next = CharacterAt(text, at);
    if (ClassOf(next.code) != CharacterClass::kSpace) break;
    at += next.bytes;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    Group& group = tokens_[i].normalized ? second_ : first_;
    group.by_content.emplace(content, i);
    group.begins[static_cast<uint8_t>(content[0])] = true;
    if (std::find(group.lengths.begin(), group.lengths.end(), content.size()) ==
        group.lengths.end()) {
      group.lengths.push_back(content.size());
    }
  }
  for (Group* group : {&first_, &second_}) {
    std::sort(group->lengths.begin(), group->lengths.end(), std::greater<>());
  }
}

const AddedToken* AddedTokens::Find(absl::string_view content) const {
  for (const Group* group : {&first_, &second_}) {
    const auto found = group->by_content.find(content);
    if (found != group->by_content.end()) return &tokens_[found->second];
  }
  return nullptr;
}

const AddedToken* AddedTokens::TokenAt(const Group& group, absl::string_view text,
                                       size_t at) const {
  if (!group.begins[static_cast<uint8_t>(text[at])]) return nullptr;
  for (const size_t length : group.lengths) {
    if (length > text.size() - at) continue;
    const auto found = group.by_content.find(text.substr(at, length));
    if (found != group.by_content.end()) return &tokens_[found->second];
  }
  return nullptr;
}

void AddedTokens::CutGroup(const Group& group, absl::string_view text, SpecialText special,
                           Part part) const {
  // What is cut off already ends at `done`.
  size_t done = 0, at = 0;
  while (at < text.size() && !group.lengths.empty()) {
    const AddedToken* const token = TokenAt(group, text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->special && special == SpecialText::kIsText) continue;
    if (token->lstrip) begin = BeginOfBlanks(text, done, begin);
    if (token->rstrip) end = EndOfBlanks(text, end);
    // Blanks that the token before has taken are its own.
    if (begin > done) part(text.substr(done, begin - done), nullptr);
    part(text.substr(begin, end - begin), token);
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) part(text.substr(done), nullptr);
}

void AddedTokens::Cut(absl::string_view text, SpecialText special, Part part) const {
  CutGroup(first_, text, special, [&](absl::string_view piece, const AddedToken* token) {
    if (token != nullptr) return part(piece, token);
    CutGroup(second_, piece, special, part);
  });
}

}  // namespace brigade::data
