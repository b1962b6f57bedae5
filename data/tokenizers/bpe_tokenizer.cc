#include "brigade/data/tokenizers/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "brigade/data/tokenizers/utf8.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

constexpr const char* kEndsOfText[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};

absl::Status CheckAdded(const std::vector<AddedToken>& tokens) {
  absl::flat_hash_map<absl::string_view, int32_t> contents;
  for (const AddedToken& token : tokens) {
    if (token.content.empty() || token.id < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the added token ", device::Quoted(token.content), " has the id ", token.id,
                       token.content.empty() ? " and no text" : ""));
    }
    if (ValidUtf8Prefix(token.content) != token.content.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the added token ", device::Quoted(token.content), " is not valid UTF-8"));
    }
    if (!contents.emplace(token.content, token.id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the added token ", device::Quoted(token.content), " is there twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BpeTokenizer>> BpeTokenizer::Create(BpeTokens tokens,
                                                                   BpeOptions options) {
  BRIGADE_RETURN_IF_ERROR(CheckAdded(options.added));
  BRIGADE_ASSIGN_OR_RETURN(BpeModel model, BpeModel::Create(std::move(tokens)));
  const std::string end_of_text = options.end_of_text;
  auto tokenizer = absl::WrapUnique(new BpeTokenizer(std::move(model), std::move(options)));
  for (const auto* around : {&tokenizer->options_.before_text, &tokenizer->options_.after_text}) {
    for (const int32_t id : *around) {
      if (id >= 0 && id < tokenizer->vocabulary()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("id ", id, " around a text is none of the tokenizer's"));
    }
  }
  if (!end_of_text.empty() && !tokenizer->end_of_text_.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the end of a text, ", device::Quoted(end_of_text), ", is no added token"));
  }
  return tokenizer;
}

BpeTokenizer::BpeTokenizer(BpeModel model, BpeOptions options)
    : model_(std::move(model)),
      options_(std::move(options)),
      added_(options_.added),
      vocabulary_(model_.vocabulary()) {
  for (const AddedToken& token : added_.all()) {
    added_by_id_.emplace(token.id, token.content);
    vocabulary_ = std::max(vocabulary_, int64_t{token.id} + 1);
  }
  if (!options_.end_of_text.empty()) {
    end_of_text_ = IdOf(options_.end_of_text);
    return;
  }
  for (const char* name : kEndsOfText) {
    if (!end_of_text_.has_value()) end_of_text_ = IdOf(name);
  }
}

std::optional<int32_t> BpeTokenizer::IdOf(absl::string_view special_token) const {
  const AddedToken* const token = added_.Find(special_token);
  if (token == nullptr) return std::nullopt;
  return token->id;
}

absl::Status BpeTokenizer::Encode(absl::string_view text, SpecialText special,
                                  std::vector<int32_t>& ids) const {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("byte ", valid, " of the text is ",
                                                   static_cast<uint8_t>(text[valid]),
                                                   ", which is not valid UTF-8 there"));
  }
  const size_t before = ids.size();
  absl::Status status;
  added_.Cut(text, special, [&](absl::string_view part, const AddedToken* token) {
    if (!status.ok()) return;
    if (token == nullptr) {
      status = EncodeText(part, ids);
    } else {
      ids.push_back(token->id);
    }
  });
  if (!status.ok()) ids.resize(before);
  return status;
}

absl::Status BpeTokenizer::EncodeText(absl::string_view text, std::vector<int32_t>& ids) const {
  std::string with_blank;
  if (options_.add_prefix_space && text[0] != ' ') {
    with_blank = absl::StrCat(" ", text);
    text = with_blank;
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = PieceEnd(options_.pattern, text, begin);
    BRIGADE_RETURN_IF_ERROR(model_.EncodePiece(text.substr(begin, end - begin), ids));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::Decode(absl::Span<const int32_t> ids, std::string& text) const {
  for (const int32_t id : ids) {
    const auto added = added_by_id_.find(id);
    const std::string* const token =
        added != added_by_id_.end() ? &added->second : model_.TokenOf(id);
    if (token == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("id ", id, " is no token of the tokenizer"));
    }
    text += *token;
  }
  return absl::OkStatus();
}

}  // namespace brigade::data
