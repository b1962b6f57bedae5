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

}  // namespace

absl::Status ReadObject(const Json& object, const Keys& keys) {
  return Reader(keys).Object("", object, keys);
}

}  // namespace brigade::gpt
