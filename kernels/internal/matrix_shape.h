#ifndef BRIGADE_KERNELS_INTERNAL_MATRIX_SHAPE_H_
#define BRIGADE_KERNELS_INTERNAL_MATRIX_SHAPE_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace brigade::kernels {

// Of either extent of a matrix, and of all its elements: more than any memory has.
inline constexpr int64_t kMostMatrixElements = int64_t{1} << 40;

// InvalidArgument naming segment and extent for one that is negative or too large.
inline absl::Status CheckMatrixShape(absl::string_view operation, int64_t segment, int64_t rows,
                                     int64_t columns) {
  for (const auto& [name, extent] : {std::pair("rows", rows), std::pair("columns", columns)}) {
    if (extent >= 0 && extent <= kMostMatrixElements) continue;
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", name, " of segment ", segment,
                                                   " is ", extent, ", must be 0 to ",
                                                   kMostMatrixElements));
  }
  if (columns == 0 || rows <= kMostMatrixElements / columns) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": segment ", segment,
                                                 " is a matrix of ", rows, " x ", columns,
                                                 ", larger than any memory"));
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_MATRIX_SHAPE_H_
