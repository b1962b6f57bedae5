#include "brigade/checkpoint/strict_json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

using Json = nlohmann::json;

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

std::string Printable(absl::string_view text) {
  constexpr size_t kMost = 170;
  return device::Printable(text, kMost);
}

// "[json.exception.parse_error.101] parse error at line 1, ..." without the part in brackets.
std::string PlainWords(const Json::exception& error) {
  const std::string text = error.what();
  const size_t bracket = text.find("] ");
  return Printable(bracket == std::string::npos ? text : text.substr(bracket + 2));
}

// Whether a number that was read as 0 is another, to which no double comes near.
bool IsTooSmall(const std::string& number) {
  const std::string digits = number.substr(0, number.find_first_of("eE"));
  return digits.find_first_of("123456789") != std::string::npos;
}

// Walks over the text, and says how far it is.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, size_t* read) : at_(at), read_(read) {}

  reference operator*() const { return *at_; }
  Cursor& operator++() {
    ++at_;
    ++*read_;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* read_;
};

// Builds a value as it is read and ends at the first thing that is wrong, so that what is refused
// is never kept. (Json::parse with a callback goes on, and searches an array again after each
// object in it.)
class StrictReader : public JsonHandler {
 public:
  explicit StrictReader(int depth) : depth_(static_cast<size_t>(depth)) {}

  Json Take() { return std::move(root_); }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (value == 0 && IsTooSmall(text)) {
      return Fail(Path(), " is ", Printable(text),
                  "; it is too close to 0 for a number of 64 bits, at ", LineOfNumber());
    }
    return Put(value);
  }
  bool string(string_t& text) override { return Put(std::move(text)); }

  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }

  bool key(string_t& text) override {
    Level& level = levels_.back();
    const auto [member, is_new] = level.json->emplace(text, nullptr);
    level.key = std::move(text);
    level.member = &*member;
    if (!is_new && twice_++ < kMostNamed) {
      named_.push_back(absl::StrCat(Path(), " is given twice, again at ", Line()));
    }
    return true;
  }

  // Of the keys that come twice, after the rest is right.
  absl::Status status_of_keys() const {
    if (twice_ == 0) return absl::OkStatus();
    if (twice_ == 1) return Invalid(named_[0]);
    const size_t others = twice_ - named_.size();
    return Invalid(twice_, " keys are given twice:\n  ", absl::StrJoin(named_, "\n  "),
                   others == 0 ? "" : absl::StrCat("\n  and ", others, " more"));
  }

 private:
  // An object or array that is open.
  struct Level {
    Json* json = nullptr;
    // Of an object: its last key, and the value there.
    std::string key = "[]";
    Json* member = nullptr;
  };

  Json& Place(Json value) {
    if (levels_.empty()) return root_ = std::move(value);
    const Level& level = levels_.back();
    if (level.member != nullptr) return *level.member = std::move(value);
    level.json->push_back(std::move(value));
    return level.json->back();
  }
  bool Put(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json empty) {
    if (levels_.size() >= depth_) {
      return Fail("more than ", depth_, " objects and arrays within each other, at ", Line());
    }
    // It stays where it is: what holds it gets nothing more before it is closed.
    levels_.push_back({.json = &Place(std::move(empty))});
    return true;
  }
  bool Close() {
    levels_.pop_back();
    return true;
  }

  std::string Path() const {
    const auto name = [](std::string* out, const Level& each) { *out += each.key; };
    return Printable(absl::StrJoin(levels_, ".", name));
  }

  static constexpr size_t kMostNamed = 64;

  const size_t depth_;
  size_t twice_ = 0;
  std::vector<std::string> named_;
  Json root_;
  std::vector<Level> levels_;
};

}  // namespace

bool JsonHandler::parse_error(std::size_t, const std::string&, const Json::exception& error) {
  // Of numbers alone the library says no place.
  constexpr int kOverflow = 406;
  return Fail("not valid JSON: ", PlainWords(error),
              error.id == kOverflow ? absl::StrCat(", at ", LineOfNumber()) : "");
}

std::string JsonHandler::Line() const { return LineOfByte(read_); }

std::string JsonHandler::LineOfNumber() const {
  // The parser has looked at the byte behind it, unless there is none.
  const bool is_end =
      read_ == 0 || absl::ascii_isdigit(static_cast<unsigned char>(text_[read_ - 1]));
  return LineOfByte(is_end ? read_ : read_ - 1);
}

std::string JsonHandler::LineOfByte(size_t end) const {
  const absl::string_view before = text_.substr(0, end == 0 ? 0 : end - 1);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t begin = newline == absl::string_view::npos ? 0 : newline + 1;
  return absl::StrCat("line ", line, ", column ", end - begin);
}

absl::Status ReadJson(absl::string_view text, JsonHandler& handler) {
  handler.text_ = text;
  handler.read_ = 0;
  // The parser would end there.
  const size_t nul = text.find('\0');
  if (nul != absl::string_view::npos) {
    return Invalid("not valid JSON: byte ", nul, " is a NUL, at ", handler.LineOfByte(nul + 1));
  }
  nlohmann::json::sax_parse(Cursor(text.data(), &handler.read_),
                            Cursor(text.data() + text.size(), &handler.read_), &handler);
  return handler.status();
}

absl::StatusOr<std::string> JsonString(absl::string_view text) {
  // Without an exception: what is no UTF-8 becomes U+FFFD, which a text may hold by itself.
  constexpr absl::string_view kReplacement = "\xef\xbf\xbd";
  const Json value = std::string(text);
  std::string quoted = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (absl::StrContains(quoted, kReplacement) && Json::parse(quoted, nullptr, false) != value) {
    return Invalid(device::Quoted(text), " is no UTF-8");
  }
  return quoted;
}

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return Invalid("JSON of ", text.size(), " bytes, more than ", limits.bytes);
  }
  StrictReader reader(limits.depth);
  BRIGADE_RETURN_IF_ERROR(ReadJson(text, reader));
  BRIGADE_RETURN_IF_ERROR(reader.status_of_keys());
  return reader.Take();
}

}  // namespace brigade::checkpoint
