#ifndef BRIGADE_EXAMPLES_GPT_JSON_READER_H_
#define BRIGADE_EXAMPLES_GPT_JSON_READER_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

// JSON objects with known keys, read into variables. A table says of each key its name, what it may
// hold, where that goes, and whether it is supported; all errors, and the advice in them, come from
// the table.
namespace brigade::gpt {

using Json = nlohmann::json;

// Takes a value, and returns nothing; or returns what it must be instead ("true or false").
using Read = std::function<std::string(const Json& value)>;

// Without `read`, `keys` and `types`: a key that is known, but not supported yet.
struct Key {
  const char* name;
  Read read = nullptr;
  // The keys of the object that it holds.
  std::vector<Key> keys = {};
  // It holds {"type": the name of one, "params": {that one's keys}}.
  std::vector<Key> types = {};
  // The advice of the error where the key is missing; null: the key is optional.
  const char* required = nullptr;
};
using Keys = std::vector<Key>;

// Reads `object`, which may have these keys and no others. On an error some targets may have been
// written.
//
// Errors       InvalidArgument, and Unimplemented for what is not supported yet: the path
//              ("fp16.loss_scale"), the value, and what it must be, or the nearest key. In names of
//              types upper and lower case are the same.
absl::Status ReadObject(const Json& object, const Keys& keys);

// The numbers that a key may have, ends included, and how a message says so.
struct NumberRange {
  double low;
  double high;
  const char* text;

  bool Contains(const Json& value) const {
    return value.is_number() && low <= value.get<double>() && value.get<double>() <= high;
  }
};

template <typename T>
Read Number(T* target, NumberRange range) {
  return [=](const Json& value) -> std::string {
    if (!range.Contains(value)) return absl::StrCat("a number, ", range.text);
    *target = value.get<double>();
    return "";
  };
}

// 5e8 is whole as well.
template <typename T>
Read Whole(T* target, NumberRange range) {
  return [=](const Json& value) -> std::string {
    if (!range.Contains(value) || value.get<double>() != std::floor(value.get<double>())) {
      return absl::StrCat("a whole number, ", range.text);
    }
    *target = static_cast<int64_t>(value.get<double>());
    return "";
  };
}

inline Read Pair(double* first, double* second, NumberRange range) {
  return [=](const Json& value) -> std::string {
    if (!value.is_array() || value.size() != 2 || !range.Contains(value[0]) ||
        !range.Contains(value[1])) {
      return absl::StrCat("an array of two numbers, ", range.text);
    }
    *first = value[0].get<double>();
    *second = value[1].get<double>();
    return "";
  };
}

inline Read Text(std::optional<std::string>* target) {
  return [=](const Json& value) -> std::string {
    if (!value.is_string() || value.get<std::string>().empty()) return "a text that is not empty";
    *target = value.get<std::string>();
    return "";
  };
}

// `target` may be null, where either value is as good.
inline Read Flag(bool* target) {
  return [=](const Json& value) -> std::string {
    if (!value.is_boolean()) return "true or false";
    if (target != nullptr) *target = value.get<bool>();
    return "";
  };
}

// Where only one value is true.
template <typename T>
Read Only(T wanted, const char* because) {
  return [=](const Json& value) -> std::string {
    if (value == Json(wanted)) return "";
    return absl::StrCat(Json(wanted).dump(), ": ", because);
  };
}

// `target` may be null, where all are as good.
template <typename T>
Read OneOf(T* target, std::vector<std::pair<const char*, T>> words) {
  return [target, words = std::move(words)](const Json& value) -> std::string {
    std::string valid;
    for (const auto& [word, meaning] : words) {
      if (value == Json(word)) {
        if (target != nullptr) *target = meaning;
        return "";
      }
      absl::StrAppend(&valid, valid.empty() ? "\"" : " or \"", word, "\"");
    }
    return valid;
  };
}

// Any value; for a type, whose name says it all.
template <typename T>
Read Set(T* target, T meaning) {
  return [=](const Json&) -> std::string {
    *target = meaning;
    return "";
  };
}

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_JSON_READER_H_
