#include "brigade/train/config/json_values.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace brigade::train {
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

Value Off(absl::string_view instead, ByDefault by_default, std::vector<std::string> independent) {
  const std::string type = "an object that says \"enabled\": false";
  const auto is_on = [by_default, independent = std::move(independent)](const Json& section) {
    return IsOn(section, by_default) ||
           std::any_of(independent.begin(), independent.end(), [&section](const auto& path) {
             const Json* const inside = Find(section, path);
             return inside != nullptr && inside->is_object() && Says(*inside).value_or(false);
           });
  };
  return {
      [type, is_on, text = std::string(instead)](const Json& value) -> Verdict {
        if (value == Json(false)) return {};
        if (value.is_object() && !is_on(value)) {
          if (!SaysInside(value)) return {};
          return {Verdict::Kind::kNoEffect, R"("enabled": false switches off what is inside too)"};
        }
        if (!value.is_object() && !value.is_boolean()) return Wrong(type);
        const Json* const enabled = Find(value, "enabled");
        if (enabled != nullptr && *enabled == Json("auto")) {
          return {Verdict::Kind::kNotSupported,
                  absl::StrCat(R"("enabled" is "auto", which nothing fills in here: write false)",
                               text.empty() ? "" : "; ", text)};
        }
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

Value Rewritten(Value value, std::function<Json(const Json&)> rewrite) {
  value.read = [rewrite = std::move(rewrite), read = std::move(value.read)](const Json& json) {
    return read(rewrite(json));
  };
  return value;
}

}  // namespace brigade::train
