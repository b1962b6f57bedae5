#include "brigade/emulator/cublas/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "brigade/device/status_macros.h"
#include "brigade/emulator/ptx/arithmetic.h"
#include "brigade/emulator/runtime/library.h"

namespace brigade::emulator {
namespace {

int64_t BytesOf(GemmType type) { return type == GemmType::kFloat32 ? 4 : 2; }

float Load(GemmType type, const void* column, int64_t i) {
  if (type == GemmType::kFloat32) return static_cast<const float*>(column)[i];
  const uint16_t bits = static_cast<const uint16_t*>(column)[i];
  return type == GemmType::kFloat16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

void Store(GemmType type, void* column, int64_t i, float value) {
  if (type == GemmType::kFloat32) {
    static_cast<float*>(column)[i] = value;
  } else {
    static_cast<uint16_t*>(column)[i] = type == GemmType::kFloat16
                                            ? FloatToHalf(value, Rounding::kNearest)
                                            : FloatToBFloat16(value, Rounding::kNearest);
  }
}

float Rounded(GemmType type, float value) {
  switch (type) {
    case GemmType::kFloat32:
      return value;
    case GemmType::kFloat16:
      return HalfToFloat(FloatToHalf(value, Rounding::kNearest));
    case GemmType::kBFloat16:
      return BFloat16ToFloat(FloatToBFloat16(value, Rounding::kNearest));
  }
  return value;
}

char* Column(const GemmMatrix& matrix, int64_t product, int64_t column) {
  return static_cast<char*>(matrix.data) +
         (product * matrix.stride + column * matrix.leading) * BytesOf(matrix.type);
}

// As stored, in float, without gaps.
struct Packed {
  std::vector<float> values;
  int64_t rows = 0;
  bool transposed = false;

  // From the product's term `l` on.
  const float* From(int64_t l, bool terms_are_columns) const {
    return values.data() + (terms_are_columns != transposed ? l * rows : l);
  }
};

absl::Status Pack(const GemmMatrix& matrix, int64_t product, int64_t rows, int64_t columns,
                  Packed& packed) {
  if (matrix.transposed) std::swap(rows, columns);
  packed = {std::vector<float>(static_cast<size_t>(rows * columns)), rows, matrix.transposed};
  if (packed.values.empty()) return absl::OkStatus();
  float* to = packed.values.data();
  for (int64_t column = 0; column < columns; ++column) {
    BRIGADE_ASSIGN_OR_RETURN(const void* const from, ReadableBytes(Column(matrix, product, column),
                                                                   rows * BytesOf(matrix.type)));
    for (int64_t row = 0; row < rows; ++row) *to++ = Load(matrix.type, from, row);
  }
  return absl::OkStatus();
}

// sums += a b for the terms from `begin` to `end`.
void AddTerms(const GemmCall& call, const Packed& a, const Packed& b, int64_t begin, int64_t end,
              float* sums) {
  const auto size = [](int64_t n) { return static_cast<blasint>(n); };
  cblas_sgemm(CblasColMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, size(call.m), size(call.n),
              size(end - begin), 1.0f, a.From(begin, /*terms_are_columns=*/true), size(a.rows),
              b.From(begin, /*terms_are_columns=*/false), size(b.rows), 1.0f, sums, size(call.m));
}

std::vector<float> Sums(const GemmCall& call, const Packed& a, const Packed& b) {
  std::vector<float> sums(static_cast<size_t>(call.m * call.n));
  if (!call.reduces_in_16_bits) {
    if (call.k > 0) AddTerms(call, a, b, 0, call.k, sums.data());
    return sums;
  }
  for (int64_t l = 0; l < call.k; l += kReducedTerms) {
    std::vector<float> part(sums.size());
    AddTerms(call, a, b, l, std::min(l + kReducedTerms, call.k), part.data());
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = Rounded(call.c.type, sums[i] + Rounded(call.c.type, part[i]));
    }
  }
  return sums;
}

absl::Status StoreProduct(const GemmCall& call, int64_t product, const std::vector<float>& sums) {
  const GemmType type = call.c.type;
  for (int64_t column = 0; column < call.n; ++column) {
    char* const address = Column(call.c, product, column);
    const int64_t bytes = call.m * BytesOf(type);
    if (call.beta != 0) BRIGADE_RETURN_IF_ERROR(ReadableBytes(address, bytes).status());
    BRIGADE_ASSIGN_OR_RETURN(void* const c, WritableBytes(address, bytes));
    for (int64_t row = 0; row < call.m; ++row) {
      const float value = call.alpha * sums[static_cast<size_t>(column * call.m + row)];
      Store(type, c, row, call.beta == 0 ? value : value + call.beta * Load(type, c, row));
    }
  }
  return absl::OkStatus();
}

// Of the bytes of a column, from its first on.
using Interval = std::pair<uint64_t, uint64_t>;

// Those of a matrix, [rows, columns], in ascending order.
std::vector<Interval> Columns(const GemmMatrix& matrix, int64_t rows, int64_t columns,
                              int64_t batch) {
  if (matrix.transposed) std::swap(rows, columns);
  std::vector<Interval> intervals;
  // One that all products share is listed once.
  for (int64_t product = 0; product < (matrix.stride == 0 ? 1 : batch); ++product) {
    for (int64_t column = 0; rows > 0 && column < columns; ++column) {
      const auto begin = reinterpret_cast<uint64_t>(Column(matrix, product, column));
      intervals.emplace_back(begin, begin + static_cast<uint64_t>(rows * BytesOf(matrix.type)));
    }
  }
  std::sort(intervals.begin(), intervals.end());
  return intervals;
}

bool Overlap(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].second <= b[j].first) {
      ++i;
    } else if (b[j].second <= a[i].first) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

absl::Status CheckArrays(const GemmCall& call) {
  for (const GemmMatrix* matrix : {&call.a, &call.b, &call.c}) {
    if (reinterpret_cast<uint64_t>(matrix->data) % static_cast<uint64_t>(BytesOf(matrix->type)) ==
        0) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrFormat("a matrix at %p has elements of %d bytes",
                                                      matrix->data, BytesOf(matrix->type)));
  }
  const std::vector<Interval> c = Columns(call.c, call.m, call.n, call.batch);
  const auto overlapping = [](const Interval& a, const Interval& b) { return b.first < a.second; };
  if ((call.c.stride == 0 && call.batch > 1) ||
      std::adjacent_find(c.begin(), c.end(), overlapping) != c.end()) {
    return absl::InvalidArgumentError("products of the batch overlap in c");
  }
  if (Overlap(c, Columns(call.a, call.m, call.k, call.batch)) ||
      Overlap(c, Columns(call.b, call.k, call.n, call.batch))) {
    return absl::InvalidArgumentError("c overlaps an input");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunGemm(const GemmCall& call) {
  BRIGADE_RETURN_IF_ERROR(CheckArrays(call));
  Packed a, b;
  for (int64_t product = 0; product < call.batch; ++product) {
    BRIGADE_RETURN_IF_ERROR(Pack(call.a, product, call.m, call.k, a));
    BRIGADE_RETURN_IF_ERROR(Pack(call.b, product, call.k, call.n, b));
    BRIGADE_RETURN_IF_ERROR(StoreProduct(call, product, Sums(call, a, b)));
  }
  return absl::OkStatus();
}

}  // namespace brigade::emulator
