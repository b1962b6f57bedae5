#ifndef BRIGADE_PRECISION_DTYPE_NAMES_H_
#define BRIGADE_PRECISION_DTYPE_NAMES_H_

// What users call the types of elements, in flags, in errors and in what programs print. Files have
// precision::Name, and errors that quote them.

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "brigade/precision/dtype.h"

namespace brigade::precision {

// "fp32", "fp16", "bf16", "fp64", and for the others Name.
absl::string_view ShortName(DType dtype);

// A floating-point training format: fp32, fp16 or bf16, or in full float32, float, float16, half,
// bfloat16. None for any other text.
std::optional<DType> ParseTrainingFormat(absl::string_view text);

// Flags of a training format: ABSL_FLAG(precision::DType, ...). A refusal lists the choices.
bool AbslParseFlag(absl::string_view text, DType* dtype, std::string* error);
std::string AbslUnparseFlag(DType dtype);

}  // namespace brigade::precision

#endif  // BRIGADE_PRECISION_DTYPE_NAMES_H_
