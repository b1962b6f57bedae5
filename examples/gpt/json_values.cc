#include "brigade/examples/gpt/json_values.h"

namespace brigade::gpt {
namespace {

bool IsOn(const Json& section, ByDefault by_default) {
  bool says = false;
  for (const char* word : {"enabled", "deepcompile"}) {
    const auto found = section.find(word);
    if (found == section.end()) continue;
    if (*found != Json(false)) return true;
    says = true;
  }
  if (says) return false;
  if (by_default == ByDefault::kOn) return true;
  for (const auto& [name, inside] : section.items()) {
    if (inside.is_object() && IsOn(inside, ByDefault::kOff)) return true;
  }
  return false;
}

}  // namespace

Value Off(absl::string_view instead, ByDefault by_default) {
  const std::string type = "an object that says \"enabled\": false";
  return {
      [type, by_default, text = std::string(instead)](const Json& value) -> Verdict {
        if (value.is_null() || value == Json(false)) return {};
        if (value.is_object() && !IsOn(value, by_default)) return {};
        if (!value.is_object() && !value.is_boolean()) return Wrong(type);
        return {Verdict::Kind::kNotSupported, text};
      },
      type, "off",
      absl::StrCat("accepted when it is off; not supported", instead.empty() ? "" : ": ", instead),
      false};
}

Value NotSupported(absl::string_view instead) {
  return {[text = std::string(instead)](const Json&) -> Verdict {
            return {Verdict::Kind::kNotSupported, text};
          },
          "no value", "",
          absl::StrCat("refused: not supported", instead.empty() ? "" : ": ", instead), false};
}

}  // namespace brigade::gpt
