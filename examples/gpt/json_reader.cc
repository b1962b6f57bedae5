#include "brigade/examples/gpt/json_reader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::gpt {
namespace {

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

std::string Printable(absl::string_view text) {
  constexpr size_t kMost = 170;
  return device::Printable(text, kMost);
}

std::string Show(const Json& value) {
  constexpr bool kAscii = true;
  const char* type = value.is_string()   ? ", a string"
                     : value.is_array()  ? ", an array"
                     : value.is_object() ? ", an object"
                                         : "";
  return absl::StrCat(Printable(value.dump(-1, ' ', kAscii)), type);
}

std::string Join(absl::string_view path, absl::string_view name) {
  return absl::StrCat(path, path.empty() ? "" : ".", Printable(name));
}

absl::Status Wrong(absl::string_view path, const Json& value, absl::string_view wanted) {
  return Invalid(path.empty() ? "the config" : path, " is ", Show(value), "; it must be ", wanted);
}

absl::Status NotSupported(absl::string_view path, const Json& value) {
  return absl::UnimplementedError(
      absl::StrCat(path, " is ", Show(value), "; DeepSpeed knows it, but it is not supported yet"));
}

// Levenshtein's, ignoring case, of beginnings long enough for any name that is meant.
int EditDistance(absl::string_view a, absl::string_view b) {
  a = a.substr(0, 64);
  b = b.substr(0, 64);
  std::vector<int> row(b.size() + 1);  // distances of the a so far to each beginning of b
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (absl::ascii_tolower(a[i]) != absl::ascii_tolower(b[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

bool IsSupported(const Key& key) { return key.read || !key.keys.empty() || !key.types.empty(); }

// Of all names shown to it, the one nearest to `name`; the first of equals, supported ones before
// others.
class Nearest {
 public:
  explicit Nearest(absl::string_view name) : name_(name) {}

  void Add(const Keys& keys, absl::string_view path, absl::string_view type = "") {
    for (const Key& key : keys) {
      const int distance = 2 * EditDistance(name_, key.name) + !IsSupported(key);
      if (distance < distance_) {
        distance_ = distance;
        nearest_ = absl::StrCat(Join(path, key.name), type,
                                IsSupported(key) ? "" : ", which is not supported yet");
      }
      if (!key.keys.empty()) Add(key.keys, Join(path, key.name), type);
      for (const Key& each : key.types) {
        Add(each.keys, Join(Join(path, key.name), "params"), absl::StrCat(" of type ", each.name));
      }
    }
  }

  const std::string& nearest() const { return nearest_; }

 private:
  const absl::string_view name_;
  int distance_ = std::numeric_limits<int>::max();
  std::string nearest_;
};

class Reader {
 public:
  explicit Reader(const Keys& root) : root_(root) {}

  absl::Status Object(absl::string_view path, const Json& object, const Keys& keys) const {
    if (!object.is_object()) return Wrong(path, object, "an object");
    for (const auto& [name, value] : object.items()) {
      const auto key = std::find_if(keys.begin(), keys.end(),
                                    [&name = name](const Key& each) { return each.name == name; });
      if (key == keys.end()) return Unknown(path, name, value, keys);
      BRIGADE_RETURN_IF_ERROR(Value(Join(path, name), value, *key));
    }
    for (const Key& key : keys) {
      if (key.required != nullptr && !object.contains(key.name)) {
        return Invalid(Join(path, key.name), " is not given; ", key.required);
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Value(absl::string_view path, const Json& value, const Key& key) const {
    if (!IsSupported(key)) return NotSupported(path, value);
    if (!key.types.empty()) return Typed(path, value, key.types);
    if (!key.keys.empty()) return Object(path, value, key.keys);
    const std::string wanted = key.read(value);
    return wanted.empty() ? absl::OkStatus() : Wrong(path, value, wanted);
  }

  absl::Status Typed(absl::string_view path, const Json& value, const Keys& types) const {
    if (!value.is_object()) return Wrong(path, value, "an object");
    const std::string type_path = Join(path, "type");
    const auto given = value.find("type");
    if (given == value.end()) {
      std::string valid;
      for (const Key& each : types) {
        if (IsSupported(each)) absl::StrAppend(&valid, valid.empty() ? "" : ", ", each.name);
      }
      return Invalid(type_path, " is not given; it must be one of ", valid);
    }
    if (!given->is_string()) return Wrong(type_path, *given, "a string");
    const std::string& name = given->get_ref<const std::string&>();
    const auto type = std::find_if(types.begin(), types.end(), [&](const Key& each) {
      return absl::EqualsIgnoreCase(each.name, name);
    });
    if (type == types.end()) {
      Nearest nearest(name);
      for (const Key& each : types) nearest.Add({{each.name, each.read}}, "");
      return Invalid(type_path, " is ", Show(*given), "; there is no such type, the nearest is ",
                     nearest.nearest());
    }
    if (!IsSupported(*type)) return NotSupported(type_path, *given);
    // Without params those that are required are missing as well.
    const Key params = {"params", nullptr, type->keys};
    if (!value.contains("params")) {
      BRIGADE_RETURN_IF_ERROR(Value(Join(path, "params"), Json::object(), params));
    }
    return Object(path, value, {{"type", type->read}, params});
  }

  absl::Status Unknown(absl::string_view path, const std::string& name, const Json& value,
                       const Keys& keys) const {
    Nearest nearest(name);
    nearest.Add(keys, path);
    nearest.Add(root_, "");
    return Invalid(Join(path, name), " is ", Show(value), "; there is no such key, the nearest is ",
                   nearest.nearest());
  }

  const Keys& root_;
};

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

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    return Invalid("the config has ", text.size(), " bytes, more than ", kMaxJsonBytes);
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
      if (depth >= kMaxJsonDepth && problem.empty()) {
        problem =
            absl::StrCat("more than ", kMaxJsonDepth, " objects and arrays within each other");
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

absl::Status ReadObject(const Json& object, const Keys& keys) {
  return Reader(keys).Object("", object, keys);
}

}  // namespace brigade::gpt
