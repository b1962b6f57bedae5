#ifndef BRIGADE_TRAIN_CONFIG_JSON_VALUES_H_
#define BRIGADE_TRAIN_CONFIG_JSON_VALUES_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/train/config/json_reader.h"

// The kinds of values that keys may hold (json_reader.h). Targets are written by reading, and say
// the default by what they have when a table is made.
namespace brigade::train {

// The numbers that a key may have, ends included, and how a message says so.
struct NumberRange {
  double low;
  double high;
  const char* text;

  bool Contains(const Json& value) const {
    return value.is_number() && low <= value.get<double>() && value.get<double>() <= high;
  }
};

inline Verdict Wrong(std::string wanted) { return {Verdict::Kind::kWrong, std::move(wanted)}; }

// Of a target; empty of an optional one that has none.
template <typename T>
std::string DefaultOf(const T& target) {
  return Json(target).dump();
}
template <typename T>
std::string DefaultOf(const std::optional<T>& target) {
  return target.has_value() ? DefaultOf(*target) : "";
}

template <typename T>
Value Number(T* target, NumberRange range) {
  const std::string type = absl::StrCat("a number, ", range.text);
  return {[=](const Json& value) -> Verdict {
            if (!range.Contains(value)) return Wrong(type);
            *target = value.get<double>();
            return {};
          },
          type, DefaultOf(*target)};
}

// 5e8 is whole as well.
template <typename T>
Value Whole(T* target, NumberRange range) {
  const std::string type = absl::StrCat("a whole number, ", range.text);
  return {[=](const Json& value) -> Verdict {
            if (!range.Contains(value) || value.get<double>() != std::floor(value.get<double>())) {
              return Wrong(type);
            }
            *target = static_cast<int64_t>(value.get<double>());
            return {};
          },
          type, DefaultOf(*target)};
}

inline Value Pair(double* first, double* second, NumberRange range) {
  const std::string type = absl::StrCat("an array of two numbers, ", range.text);
  return {[=](const Json& value) -> Verdict {
            if (!value.is_array() || value.size() != 2 || !range.Contains(value[0]) ||
                !range.Contains(value[1])) {
              return Wrong(type);
            }
            *first = value[0].get<double>();
            *second = value[1].get<double>();
            return {};
          },
          type, Json({*first, *second}).dump()};
}

inline Value Text(std::optional<std::string>* target) {
  const std::string type = "a text that is not empty";
  return {[=](const Json& value) -> Verdict {
            if (!value.is_string() || value.get<std::string>().empty()) return Wrong(type);
            *target = value.get<std::string>();
            return {};
          },
          type};
}

// The same with a default, and what may be empty.
inline Value Text(std::string* target) {
  const std::string type = "a text that is not empty";
  return {[=](const Json& value) -> Verdict {
            if (!value.is_string() || value.get<std::string>().empty()) return Wrong(type);
            *target = value.get<std::string>();
            return {};
          },
          type, DefaultOf(*target)};
}

inline Value AnyText(std::string* target) {
  const std::string type = "a text";
  return {[=](const Json& value) -> Verdict {
            if (!value.is_string()) return Wrong(type);
            *target = value.get<std::string>();
            return {};
          },
          type, DefaultOf(*target)};
}

inline Value Flag(bool* target) {
  const std::string type = "true or false";
  return {[=](const Json& value) -> Verdict {
            if (!value.is_boolean()) return Wrong(type);
            *target = value.get<bool>();
            return {};
          },
          type, DefaultOf(*target)};
}

// What `value` may be, or "auto", which is ours to choose: then `is_open` is true.
inline Value OrChosen(Value value, bool* is_open) {
  absl::StrAppend(&value.type, " or \"auto\"");
  value.read = [read = std::move(value.read), type = value.type,
                is_open](const Json& said) -> Verdict {
    *is_open = said == Json("auto");
    if (*is_open) return {};
    Verdict verdict = read(said);
    if (verdict.kind == Verdict::Kind::kWrong) verdict.text = type;
    return verdict;
  };
  return value;
}

// `target` may be null, where all are as good.
template <typename T>
Value OneOf(T* target, std::vector<std::pair<const char*, T>> words) {
  std::string type, otherwise;
  for (const auto& [word, meaning] : words) {
    absl::StrAppend(&type, type.empty() ? "\"" : " or \"", word, "\"");
    const bool is_default = target == nullptr || meaning == *target;
    if (otherwise.empty() && is_default) otherwise = absl::StrCat("\"", word, "\"");
  }
  return {[target, type, words = std::move(words)](const Json& value) -> Verdict {
            for (const auto& [word, meaning] : words) {
              if (value != Json(word)) continue;
              if (target != nullptr) *target = meaning;
              return {};
            }
            return Wrong(type);
          },
          type, otherwise};
}

// A text that `parse` understands. `words`: which ones it does.
template <typename T, typename Parse>
Value Parsed(std::optional<T>* target, Parse parse, std::string words) {
  return {[=](const Json& value) -> Verdict {
            if (!value.is_string()) return Wrong(words);
            auto parsed = parse(value.get<std::string>());
            if (!parsed.ok()) return Wrong(words);
            *target = *std::move(parsed);
            return {};
          },
          words};
}

// A type, whose name says it all.
template <typename T>
Value Set(T* target, T meaning) {
  return {[=](const Json&) -> Verdict {
    *target = meaning;
    return {};
  }};
}

// Where only one value is so.
template <typename T>
Value Only(T wanted, absl::string_view because) {
  const Json only(wanted);
  return {[only, text = absl::StrCat(only.dump(), ": ", because)](const Json& value) -> Verdict {
            return value == only ? Verdict() : Wrong(text);
          },
          absl::StrCat("only ", only.dump()), only.dump(),
          absl::StrCat("any other value is refused: ", because)};
}

// Whatever is of one type with `neutral` is accepted; what differs from it has no effect. For what
// changes no result: memory, speed, or what is written beside a training.
template <typename T>
Value Tuning(T neutral, absl::string_view because) {
  const Json same(neutral);
  const bool is_number = same.is_number();
  const std::string type = is_number           ? "a number"
                           : same.is_boolean() ? "true or false"
                                               : "any value";
  return {[=, why = std::string(because)](const Json& value) -> Verdict {
            if (value == same) return {};
            if (value == Json("auto")) return {Verdict::Kind::kNoEffect, why};
            if (is_number && !value.is_number()) return Wrong(type);
            if (same.is_boolean() && !value.is_boolean()) return Wrong(type);
            return {Verdict::Kind::kNoEffect, why};
          },
          type, same.is_null() ? "" : same.dump(), absl::StrCat("without effect: ", because)};
}

// All values are as good as another.
template <typename T>
Value Either(T neutral, absl::string_view because) {
  Value value = Tuning(neutral, because);
  value.read = [read = value.read](const Json& json) -> Verdict {
    Verdict verdict = read(json);
    return verdict.kind == Verdict::Kind::kNoEffect ? Verdict() : verdict;
  };
  value.remark = absl::StrCat("either is accepted: ", because);
  return value;
}

// A section of something that is not supported, which is accepted when it is off: false, or an
// object in which "enabled" (and "deepcompile") is false. Without that word it is off too, unless
// it is on by default; with sections inside, all of these must be off. That word switches off what
// is inside too, which is told as without effect where it says that it is on. What else it says is
// not read. `instead`: what there is, or empty. `independent`: paths of sections inside that are on
// where they say so, whatever is said around them ("inner.innermost").
enum class ByDefault : uint8_t { kOff, kOn };
Value Off(absl::string_view instead, ByDefault by_default = ByDefault::kOff,
          std::vector<std::string> independent = {});

// A type, or key, that is refused with any value.
Value NotSupported(absl::string_view instead = "");

// The same of what `rewrite` makes of a value. Refusals show what the file says.
Value Rewritten(Value value, std::function<Json(const Json&)> rewrite);

// What "auto" means where a flag may say it instead; null, as good as nothing, where the flag says
// it in another way.
inline Auto FromFlag(const char* flag, bool is_given, Json value = nullptr) {
  return {flag, is_given ? std::make_optional(std::move(value)) : std::nullopt};
}

// Where the default is a choice of ours too: it changes memory or speed, and no result.
inline Auto OurDefault() { return {.value = Json(nullptr)}; }

// The same with another default: "what follows from the others".
inline Value Otherwise(Value value, std::string otherwise) {
  value.otherwise = std::move(otherwise);
  return value;
}

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_JSON_VALUES_H_
