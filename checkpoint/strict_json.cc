#include "brigade/checkpoint/strict_json.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/printable.h"

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

// Of objects and arrays that are open at some moment.
struct Level {
  std::set<std::string> keys = {};
  std::string last_key = "[]";
};

// The numbers of a JSON text, as they are written, in their order.
std::vector<std::string> NumbersOf(absl::string_view text) {
  std::vector<std::string> numbers;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text[i] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      ++end;
    } else if (text[i] == '-' || absl::ascii_isdigit(static_cast<unsigned char>(text[i]))) {
      end = std::min(text.find_first_not_of("0123456789+-.eE", i), text.size());
      numbers.emplace_back(text.substr(i, end - i));
    }
    i = end;
  }
  return numbers;
}

// Whether a number that was read as `value` is none that a double can come near to.
bool IsTooSmall(const std::string& number, const Json& value) {
  const std::string digits = number.substr(0, number.find_first_of("eE"));
  return value.is_number_float() && value.get<double>() == 0 &&
         digits.find_first_of("123456789") != std::string::npos;
}

// "[json.exception.parse_error.101] parse error at line 1, ..." without the part in brackets.
std::string PlainWords(const Json::exception& error) {
  const std::string text = error.what();
  const size_t bracket = text.find("] ");
  return Printable(bracket == std::string::npos ? text : text.substr(bracket + 2));
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return Invalid("JSON of ", text.size(), " bytes, more than ", limits.bytes);
  }
  // The parser would end there.
  const size_t nul = text.find('\0');
  if (nul != absl::string_view::npos) return Invalid("not valid JSON: byte ", nul, " is a NUL");
  const std::vector<std::string> numbers = NumbersOf(text);
  size_t next_number = 0;
  std::vector<Level> levels;
  std::string problem;
  const auto path = [&] {
    const auto name = [](std::string* out, const Level& each) { *out += each.last_key; };
    return Printable(absl::StrJoin(levels, ".", name));
  };
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= limits.depth && problem.empty()) {
        problem = absl::StrCat("more than ", limits.depth, " objects and arrays within each other");
      }
      if (problem.empty()) {
        levels.resize(depth);
        levels.emplace_back();
      }
    } else if (event == Json::parse_event_t::key && problem.empty()) {
      levels.resize(depth);  // what was opened later is closed
      Level& level = levels.back();
      level.last_key = value.get<std::string>();
      if (!level.keys.insert(level.last_key).second) {
        problem = absl::StrCat(path(), " is given twice");
      }
    } else if (event == Json::parse_event_t::value && value.is_number()) {
      const std::string number = next_number < numbers.size() ? numbers[next_number] : "";
      ++next_number;
      if (IsTooSmall(number, value) && problem.empty()) {
        levels.resize(std::min<size_t>(levels.size(), depth));
        problem = absl::StrCat(path(), " is ", Printable(number),
                               "; it is too close to 0 for a number of 64 bits");
      }
    }
    return problem.empty();  // false: the value is dropped
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), watch);
    if (!problem.empty()) return Invalid(problem);
    return json;
  } catch (const Json::exception& error) {
    return Invalid("not valid JSON: ", PlainWords(error));
  }
}

}  // namespace brigade::checkpoint
