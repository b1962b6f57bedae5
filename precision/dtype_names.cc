#include "brigade/precision/dtype_names.h"

#include <utility>

namespace brigade::precision {

absl::string_view ShortName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kFloat16:
      return "fp16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat64:
      return "fp64";
    default:
      return Name(dtype);
  }
}

std::optional<DType> ParseTrainingFormat(absl::string_view text) {
  constexpr std::pair<absl::string_view, DType> kNames[] = {
      {"fp32", DType::kFloat32},    {"fp16", DType::kFloat16},    {"bf16", DType::kBFloat16},
      {"float32", DType::kFloat32}, {"float16", DType::kFloat16}, {"bfloat16", DType::kBFloat16},
      {"float", DType::kFloat32},   {"half", DType::kFloat16}};
  for (const auto& [name, dtype] : kNames) {
    if (text == name) return dtype;
  }
  return std::nullopt;
}

bool AbslParseFlag(absl::string_view text, DType* dtype, std::string* error) {
  const std::optional<DType> parsed = ParseTrainingFormat(text);
  if (!parsed.has_value()) {
    *error = "it must be fp32, fp16 or bf16";
    return false;
  }
  *dtype = *parsed;
  return true;
}

std::string AbslUnparseFlag(DType dtype) { return std::string(ShortName(dtype)); }

}  // namespace brigade::precision
