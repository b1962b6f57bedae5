#include "brigade/benchmarks/common/numbers.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace brigade::benchmarks {
namespace {

// Of a flag that is a number.
std::optional<double> ValueOf(const absl::CommandLineFlag& flag) {
  if (const auto value = flag.TryGet<int>()) return *value;
  if (const auto value = flag.TryGet<int64_t>()) return static_cast<double>(*value);
  if (const auto value = flag.TryGet<double>()) return *value;
  return std::nullopt;
}

}  // namespace

absl::Status CheckNumbers() {
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::StrContains(flag->Filename(), "benchmarks/")) continue;
    const std::optional<double> value = ValueOf(*flag);
    if (!value.has_value()) continue;
    const bool may_be_zero = flag->IsOfType<double>() || flag->DefaultValue() == "0";
    const double least = may_be_zero ? 0 : 1;
    if (*value >= least && std::isfinite(*value)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", name, " is ", flag->CurrentValue(),
                                                   ", but it must be at least ", least));
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
