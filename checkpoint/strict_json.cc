#include "brigade/checkpoint/strict_json.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
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
                  "; it is too close to 0 for a number of 64 bits");
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
    return is_new || Fail(Path(), " is given twice");
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
      return Fail("more than ", depth_, " objects and arrays within each other");
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

  const size_t depth_;
  Json root_;
  std::vector<Level> levels_;
};

}  // namespace

bool JsonHandler::parse_error(std::size_t, const std::string&, const Json::exception& error) {
  return Fail("not valid JSON: ", PlainWords(error));
}

absl::Status ReadJson(absl::string_view text, JsonHandler& handler) {
  // The parser would end there.
  const size_t nul = text.find('\0');
  if (nul != absl::string_view::npos) return Invalid("not valid JSON: byte ", nul, " is a NUL");
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  return handler.status();
}

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return Invalid("JSON of ", text.size(), " bytes, more than ", limits.bytes);
  }
  StrictReader reader(limits.depth);
  BRIGADE_RETURN_IF_ERROR(ReadJson(text, reader));
  return reader.Take();
}

}  // namespace brigade::checkpoint
