#include "brigade/examples/gpt/json_values.h"

#include <optional>

namespace brigade::gpt {
namespace {

// Whether the section's own words, if it has any, say that it is on.
std::optional<bool> Says(const Json& section) {
  std::optional<bool> says;
  for (const char* word : {"enabled", "deepcompile"}) {
    const Json* const value = Find(section, word);
    if (value == nullptr) continue;
    if (*value != Json(false)) return true;
    says = false;
  }
  return says;
}

// Whether any section inside it says that it is on.
bool SaysInside(const Json& section) {
  for (const auto& [name, inside] : section.items()) {
    if (inside.is_object() && (Says(inside).value_or(false) || SaysInside(inside))) return true;
  }
  return false;
}

bool IsOn(const Json& section, ByDefault by_default) {
  if (const std::optional<bool> says = Says(section); says.has_value()) return *says;
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
        if (value == Json(false)) return {};
        if (value.is_object() && !IsOn(value, by_default)) {
          if (!SaysInside(value)) return {};
          return {Verdict::Kind::kNoEffect, R"("enabled": false switches off what is inside too)"};
        }
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
