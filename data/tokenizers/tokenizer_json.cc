#include "brigade/data/tokenizers/tokenizer_json.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/data/tokenizers/byte_symbols.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "nlohmann/json.hpp"

namespace brigade::data {
namespace {

using Json = nlohmann::json;

// Llama 3's has 9 MB. Reading takes up to 48 times as much.
constexpr size_t kMostBytes = 64 << 20;

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}
template <typename... What>
absl::Status NotSupported(const What&... what) {
  return absl::UnimplementedError(absl::StrCat(what...));
}

// A value for a message.
std::string Shown(const Json& value) {
  constexpr size_t kMost = 120;
  return device::Printable(value.dump(-1, ' ', true, Json::error_handler_t::replace), kMost);
}

// The value of a key; null where it is not given, or where `object` is none.
const Json& At(const Json& object, const char* key) {
  static const Json& nothing = *new Json;
  if (!object.is_object()) return nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

absl::StatusOr<bool> BoolAt(const Json& object, const char* key, bool otherwise,
                            absl::string_view path) {
  const Json& value = At(object, key);
  if (value.is_null()) return otherwise;
  if (value.is_boolean()) return value.get<bool>();
  return Invalid(path, ".", key, " is ", Shown(value), ", not true or false");
}

std::string TypeOf(const Json& object) {
  const Json& type = At(object, "type");
  return type.is_string() ? type.get<std::string>() : "";
}

absl::StatusOr<int32_t> IdFrom(const Json& value, absl::string_view path) {
  if (value.is_number_unsigned() && value.get<uint64_t>() < INT32_MAX) {
    return static_cast<int32_t>(value.get<uint64_t>());
  }
  return Invalid(path, " is ", Shown(value), ", not an id of 0 to 2^31 - 2");
}

// Reads the parts of the file in turn; each one knows what was read before it.
class Reader {
 public:
  explicit Reader(const Json& file) : file_(file) {}

  absl::StatusOr<std::unique_ptr<BpeTokenizer>> Read() {
    if (!file_.is_object()) return Invalid("it is ", Shown(file_), ", not an object");
    BRIGADE_RETURN_IF_ERROR(ReadNormalizer());
    BRIGADE_RETURN_IF_ERROR(ReadPreTokenizer());
    BRIGADE_RETURN_IF_ERROR(ReadDecoder());
    BRIGADE_RETURN_IF_ERROR(ReadAdded());
    BRIGADE_RETURN_IF_ERROR(ReadModel());
    BRIGADE_RETURN_IF_ERROR(ReadPostProcessor(At(file_, "post_processor"), "post_processor", 0));
    return BpeTokenizer::Create(std::move(tokens_), std::move(options_));
  }

 private:
  absl::Status ReadNormalizer() const {
    const Json& normalizer = At(file_, "normalizer");
    const Json& members = At(normalizer, "normalizers");
    const bool is_empty = TypeOf(normalizer) == "Sequence" && members.is_array() && members.empty();
    if (normalizer.is_null() || is_empty) return absl::OkStatus();
    return NotSupported("normalizer is ", Shown(normalizer),
                        "; texts that are normalized before they are cut are not supported");
  }

  absl::Status ReadPreTokenizer() {
    const Json& pre = At(file_, "pre_tokenizer");
    if (TypeOf(pre) == "ByteLevel") return ReadByteLevel(pre, "pre_tokenizer", std::nullopt);
    const Json& members = At(pre, "pretokenizers");
    if (TypeOf(pre) == "Sequence" && members.is_array() && members.size() == 1 &&
        TypeOf(members[0]) == "ByteLevel") {
      return ReadByteLevel(members[0], "pre_tokenizer.pretokenizers[0]", std::nullopt);
    }
    const bool is_split = TypeOf(pre) == "Sequence" && members.is_array() && members.size() == 2 &&
                          TypeOf(members[0]) == "Split" && TypeOf(members[1]) == "ByteLevel";
    if (!is_split) {
      return NotSupported("pre_tokenizer is ", Shown(pre),
                          "; supported are ByteLevel, and a Sequence of Split and ByteLevel");
    }
    BRIGADE_ASSIGN_OR_RETURN(const SplitPattern pattern, PatternFrom(members[0]));
    return ReadByteLevel(members[1], "pre_tokenizer.pretokenizers[1]", pattern);
  }

  static absl::StatusOr<SplitPattern> PatternFrom(const Json& split) {
    constexpr absl::string_view kPath = "pre_tokenizer.pretokenizers[0]";
    const Json& regex = At(At(split, "pattern"), "Regex");
    const std::optional<SplitPattern> pattern =
        regex.is_string() ? PatternOf(regex.get_ref<const std::string&>()) : std::nullopt;
    if (!pattern.has_value()) {
      return NotSupported(kPath, ".pattern is ", Shown(At(split, "pattern")),
                          "; supported are the regexes of GPT-2, Llama 3 and Qwen 2");
    }
    BRIGADE_ASSIGN_OR_RETURN(const bool invert, BoolAt(split, "invert", false, kPath));
    const Json& behavior = At(split, "behavior");
    // These patterns match all of a text, so that both keep each match and nothing is between them.
    const bool keeps = invert ? behavior == "Removed" : behavior == "Isolated";
    if (keeps) return *pattern;
    return NotSupported(kPath, ".behavior is ", Shown(behavior), " with invert ",
                        invert ? "true" : "false",
                        "; supported are \"Isolated\" with false, \"Removed\" with true");
  }

  // `split`: the pattern by which the text has been cut before.
  absl::Status ReadByteLevel(const Json& level, absl::string_view path,
                             std::optional<SplitPattern> split) {
    BRIGADE_ASSIGN_OR_RETURN(const bool use_regex, BoolAt(level, "use_regex", true, path));
    BRIGADE_ASSIGN_OR_RETURN(options_.add_prefix_space,
                             BoolAt(level, "add_prefix_space", true, path));
    if (split.has_value() && (use_regex || options_.add_prefix_space)) {
      return NotSupported(path, " is ", Shown(level),
                          "; behind a Split use_regex and add_prefix_space must be false");
    }
    options_.pattern = split.has_value() ? *split
                       : use_regex       ? SplitPattern::kGpt2
                                         : SplitPattern::kNone;
    return absl::OkStatus();
  }

  absl::Status ReadDecoder() const {
    const Json& decoder = At(file_, "decoder");
    if (decoder.is_null() || TypeOf(decoder) == "ByteLevel") return absl::OkStatus();
    return NotSupported("decoder is ", Shown(decoder), "; supported is ByteLevel");
  }

  absl::Status ReadAdded() {
    const Json& added = At(file_, "added_tokens");
    if (added.is_null()) return absl::OkStatus();
    if (!added.is_array()) return Invalid("added_tokens is ", Shown(added), ", not an array");
    for (size_t i = 0; i < added.size(); ++i) {
      const std::string path = absl::StrCat("added_tokens[", i, "]");
      const Json& content = At(added[i], "content");
      if (!content.is_string()) {
        return Invalid(path, ".content is ", Shown(content), ", not a string");
      }
      AddedToken token = {.content = content.get<std::string>()};
      BRIGADE_ASSIGN_OR_RETURN(token.id, IdFrom(At(added[i], "id"), absl::StrCat(path, ".id")));
      BRIGADE_ASSIGN_OR_RETURN(token.special, BoolAt(added[i], "special", false, path));
      BRIGADE_ASSIGN_OR_RETURN(token.lstrip, BoolAt(added[i], "lstrip", false, path));
      BRIGADE_ASSIGN_OR_RETURN(token.rstrip, BoolAt(added[i], "rstrip", false, path));
      BRIGADE_ASSIGN_OR_RETURN(token.normalized, BoolAt(added[i], "normalized", true, path));
      BRIGADE_ASSIGN_OR_RETURN(const bool single_word,
                               BoolAt(added[i], "single_word", false, path));
      if (single_word) return NotSupported(path, ".single_word is true; that is not supported");
      ids_of_added_.emplace(token.content, token.id);
      options_.added.push_back(std::move(token));
    }
    return absl::OkStatus();
  }

  absl::Status ReadModel() {
    const Json& model = At(file_, "model");
    const Json& type = At(model, "type");
    if (!model.is_object() || !(type.is_null() || type == "BPE")) {
      return NotSupported("model is ", Shown(model.is_object() ? type : model),
                          "; supported is BPE");
    }
    const Json& dropout = At(model, "dropout");
    if (!dropout.is_null() && dropout != 0) {
      return NotSupported("model.dropout is ", Shown(dropout), "; that is not supported");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& affix = At(model, key);
      if (affix.is_null() || affix == "") continue;
      return NotSupported("model.", key, " is ", Shown(affix), "; byte-level BPE has none");
    }
    BRIGADE_ASSIGN_OR_RETURN(tokens_.whole_pieces, BoolAt(model, "ignore_merges", false, "model"));
    BRIGADE_RETURN_IF_ERROR(ReadVocabulary(At(model, "vocab")));
    BRIGADE_RETURN_IF_ERROR(ReadMerges(At(model, "merges")));
    BRIGADE_ASSIGN_OR_RETURN(const bool fallback, BoolAt(model, "byte_fallback", false, "model"));
    const bool has_unknown = !At(model, "unk_token").is_null();
    if (!fallback && !has_unknown) return absl::OkStatus();
    // What stands for a byte without a token has no effect where every byte has one.
    for (int byte = 0; byte < 256; ++byte) {
      if (ids_.contains(SymbolsOf(std::string(1, static_cast<char>(byte))))) continue;
      return NotSupported("model.", fallback ? "byte_fallback" : "unk_token",
                          " is given, and byte ", byte, " has no token; that is not supported");
    }
    return absl::OkStatus();
  }

  absl::Status ReadVocabulary(const Json& vocabulary) {
    if (!vocabulary.is_object()) {
      return Invalid("model.vocab is ", Shown(vocabulary), ", not an object");
    }
    for (const auto& [symbols, value] : vocabulary.items()) {
      const std::string path = absl::StrCat("model.vocab[", device::Quoted(symbols), "]");
      BRIGADE_ASSIGN_OR_RETURN(const int32_t id, IdFrom(value, path));
      // An added token stands for itself.
      const auto added = ids_of_added_.find(symbols);
      const bool is_added = added != ids_of_added_.end() && added->second == id;
      std::optional<std::string> bytes = is_added ? symbols : BytesOf(symbols);
      if (!bytes.has_value() || bytes->empty()) {
        return NotSupported(path,
                            " has characters that stand for no byte: the model is not one of "
                            "bytes");
      }
      const auto [same, is_new] = tokens_.tokens.emplace(id, *std::move(bytes));
      if (!is_new) {
        return Invalid(path, " is ", id, ", which is the id of ", device::Quoted(same->second),
                       " too");
      }
      ids_.emplace(symbols, id);
    }
    return absl::OkStatus();
  }

  absl::Status ReadMerges(const Json& merges) {
    if (!merges.is_array()) return Invalid("model.merges is ", Shown(merges), ", not an array");
    tokens_.merges.reserve(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      absl::string_view left, right;
      const Json& merge = merges[i];
      if (merge.is_string()) {
        const absl::string_view both = merge.get_ref<const std::string&>();
        const size_t blank = both.find(' ');
        if (blank != absl::string_view::npos) {
          left = both.substr(0, blank);
          right = both.substr(blank + 1);
        }
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        left = merge[0].get_ref<const std::string&>();
        right = merge[1].get_ref<const std::string&>();
      }
      const auto first = ids_.find(left), second = ids_.find(right);
      if (first == ids_.end() || second == ids_.end()) {
        return Invalid("model.merges[", i, "] is ", Shown(merge), ", not two tokens of vocab");
      }
      tokens_.merges.emplace_back(first->second, second->second);
    }
    return absl::OkStatus();
  }

  absl::Status ReadPostProcessor(const Json& post, const std::string& path, int depth) {
    const std::string type = TypeOf(post);
    if (post.is_null() || type == "ByteLevel") return absl::OkStatus();
    const Json& members = At(post, "processors");
    if (type == "Sequence" && members.is_array() && depth == 0) {
      for (size_t i = 0; i < members.size(); ++i) {
        BRIGADE_RETURN_IF_ERROR(
            ReadPostProcessor(members[i], absl::StrCat(path, ".processors[", i, "]"), depth + 1));
      }
      return absl::OkStatus();
    }
    if (is_framed_) {
      return NotSupported(path, " is ", Shown(post), "; there is another one that adds tokens");
    }
    is_framed_ = true;
    if (type == "TemplateProcessing") return ReadTemplate(post, path);
    if (type == "RobertaProcessing") {
      const Json &cls = At(post, "cls"), &sep = At(post, "sep");
      if (!cls.is_array() || cls.size() != 2 || !sep.is_array() || sep.size() != 2) {
        return Invalid(path, " is ", Shown(post), ", without cls and sep of a token and its id");
      }
      options_.before_text.emplace_back();
      options_.after_text.emplace_back();
      BRIGADE_ASSIGN_OR_RETURN(options_.before_text[0], IdFrom(cls[1], path + ".cls[1]"));
      BRIGADE_ASSIGN_OR_RETURN(options_.after_text[0], IdFrom(sep[1], path + ".sep[1]"));
      return absl::OkStatus();
    }
    return NotSupported(path, " is ", Shown(post),
                        "; supported are ByteLevel, TemplateProcessing and RobertaProcessing");
  }

  absl::Status ReadTemplate(const Json& post, const std::string& path) {
    const Json& single = At(post, "single");
    if (!single.is_array()) {
      return Invalid(path, ".single is ", Shown(single), ", not an array");
    }
    bool is_behind = false;
    for (size_t i = 0; i < single.size(); ++i) {
      if (At(single[i], "Sequence").is_object()) {
        if (is_behind) return NotSupported(path, ".single has the text twice");
        is_behind = true;
        continue;
      }
      const Json& name = At(At(single[i], "SpecialToken"), "id");
      const Json& ids =
          name.is_string()
              ? At(At(At(post, "special_tokens"), name.get<std::string>().c_str()), "ids")
              : name;
      if (!ids.is_array()) {
        return Invalid(path, ".single[", i, "] is ", Shown(single[i]),
                       ", neither a Sequence nor a SpecialToken of special_tokens");
      }
      for (const Json& each : ids) {
        BRIGADE_ASSIGN_OR_RETURN(const int32_t id, IdFrom(each, path + ".special_tokens"));
        (is_behind ? options_.after_text : options_.before_text).push_back(id);
      }
    }
    if (!is_behind) return Invalid(path, ".single has no Sequence");
    return absl::OkStatus();
  }

  const Json& file_;
  BpeTokens tokens_;
  BpeOptions options_;
  bool is_framed_ = false;
  // By their text in the file.
  absl::flat_hash_map<std::string, int32_t> ids_, ids_of_added_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BpeTokenizer>> ParseTokenizerJson(absl::string_view text) {
  BRIGADE_ASSIGN_OR_RETURN(const Json file,
                           checkpoint::ParseJson(text, {.bytes = kMostBytes, .depth = 16}));
  return Reader(file).Read();
}

absl::StatusOr<std::unique_ptr<BpeTokenizer>> ReadTokenizerJson(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(const std::string text, device::ReadFile(path, kMostBytes));
  auto tokenizer = ParseTokenizerJson(text);
  if (tokenizer.ok()) return tokenizer;
  constexpr size_t kMost = 800;
  return absl::Status(tokenizer.status().code(), absl::StrCat(device::Printable(path, kMost), ": ",
                                                              tokenizer.status().message()));
}

}  // namespace brigade::data
