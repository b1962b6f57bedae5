#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "brigade/data/tokenizers/byte_symbols.h"
#include "brigade/data/tokenizers/tokenizer_json.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "nlohmann/json.hpp"

namespace brigade::data {
namespace {

// Keys in the order in which they are written, as the file's readers know it.
using Json = nlohmann::ordered_json;

Json ByteLevel(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json PreTokenizer(const BpeOptions& options) {
  const bool is_split =
      options.pattern == SplitPattern::kLlama3 || options.pattern == SplitPattern::kQwen2;
  if (!is_split) return ByteLevel(options.add_prefix_space, options.pattern == SplitPattern::kGpt2);
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(RegexOf(options.pattern))}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, ByteLevel(false, false)})}};
}

Json Added(const std::vector<AddedToken>& tokens) {
  Json added = Json::array();
  for (const AddedToken& token : tokens) {
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  return added;
}

// What stands around a text, as a template; null where nothing does.
Json PostProcessor(const BpeTokenizer& tokenizer) {
  const BpeOptions& options = tokenizer.options();
  if (options.before_text.empty() && options.after_text.empty()) return ByteLevel(false, true);
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  Json single = Json::array(), special = Json::object();
  const auto add = [&](int32_t id) {
    std::string name;
    if (!tokenizer.Decode({id}, name).ok()) name.clear();
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    special[name] = {{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
  };
  for (const int32_t id : options.before_text) add(id);
  single.push_back(text);
  for (const int32_t id : options.after_text) add(id);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", Json::array({text, second})},
          {"special_tokens", special}};
}

Json Model(const BpeTokenizer& tokenizer) {
  const BpeTokens& tokens = tokenizer.model().tokens();
  std::vector<std::pair<int32_t, std::string>> by_id;
  for (const auto& [id, bytes] : tokens.tokens) {
    // An added token stands for itself.
    const bool is_added = tokenizer.IdOf(bytes) == id;
    by_id.emplace_back(id, is_added ? bytes : SymbolsOf(bytes));
  }
  std::sort(by_id.begin(), by_id.end());
  // Pushed one by one: an ordered object looks for each key among those before.
  Json::object_t vocabulary;
  vocabulary.reserve(by_id.size());
  for (auto& [id, symbols] : by_id) {
    static_cast<Json::object_t::Container&>(vocabulary).emplace_back(std::move(symbols), id);
  }
  Json merges = Json::array();
  const auto symbols_of = [&](int32_t id) { return SymbolsOf(tokens.tokens.at(id)); };
  for (const auto& [left, right] : tokens.merges) {
    merges.push_back(Json::array({symbols_of(left), symbols_of(right)}));
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", tokens.whole_pieces},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string TokenizerJson(const BpeTokenizer& tokenizer) {
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Added(tokenizer.options().added)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", PreTokenizer(tokenizer.options())},
                     {"post_processor", PostProcessor(tokenizer)},
                     {"decoder", ByteLevel(true, true)},
                     {"model", Model(tokenizer)}};
  return file.dump(2) + "\n";
}

absl::Status WriteTokenizerJson(const BpeTokenizer& tokenizer, const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(auto file, device::FileReplacement::Begin(path));
  file.Write(TokenizerJson(tokenizer));
  return file.Commit();
}

}  // namespace brigade::data
