// The steps of PowerSGD at rank 4 that move matrices: both products, which read them, and what
// becomes of their factors. Lists are as many square matrices as there are tensors; one alone has
// 4096 columns. Gram-Schmidt stays in caches and has no ceiling of memory.

#include "brigade/kernels/orthogonalize/orthogonalize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::LowRankSegment;

constexpr int32_t kRank = 4;
constexpr int64_t kFloat = sizeof(float);

enum class Step { kRows, kColumns, kRestore };

// The matrices of a case: `count` of rows x columns.
struct Shapes {
  int64_t rows, columns, count;
};

Shapes ShapesOf(const Case& what, int64_t tensors) {
  const int64_t each = what.elements / tensors;
  const int64_t columns = std::min<int64_t>(
      4096, int64_t{1} << static_cast<int>(std::log2(static_cast<double>(each)) / 2));
  return {each / columns, columns, tensors};
}

absl::Status Measure(Step step, const Case& what, Bench& bench, benchmark::State& state) {
  BRIGADE_ASSIGN_OR_RETURN(auto matrix, bench.CreateArray<float>(what.elements, 1.0f));
  std::vector<Work> work;
  int64_t factors = 0;
  float* product = nullptr;
  if (step == Step::kRestore) {
    BRIGADE_ASSIGN_OR_RETURN(product, bench.CreateZeros<float>(what.elements));
  }
  for (const int64_t tensors : {what.tensors, int64_t{1}}) {
    const auto [rows, columns, count] = ShapesOf(what, tensors);
    const int64_t workspace = kernels::LowRankWorkspaceSize(rows, columns, kRank);
    BRIGADE_ASSIGN_OR_RETURN(auto p, bench.CreateArray<float>(count * rows * kRank, 1e-3f));
    BRIGADE_ASSIGN_OR_RETURN(auto q, bench.CreateArray<float>(count * columns * kRank, 1e-3f));
    BRIGADE_ASSIGN_OR_RETURN(auto sums, bench.CreateZeros<float>(count * workspace + 1));
    std::vector<LowRankSegment> list;
    for (int64_t i = 0; i < count; ++i) {
      list.push_back({matrix + i * rows * columns, p + i * rows * kRank, q + i * columns * kRank,
                      product + i * rows * columns, sums + i * workspace, rows, columns, kRank});
    }
    if (work.empty()) {
      factors = count * kRank * kFloat * (rows + columns);
      if (step == Step::kColumns) factors += 2 * count * workspace * kFloat;
    }
    work.push_back([=](device::Stream& stream) {
      switch (step) {
        case Step::kRows:
          return kernels::LowRankRows(list, stream);
        case Step::kColumns:
          return kernels::LowRankColumns(list, stream);
        case Step::kRestore:
          break;
      }
      return kernels::LowRankRestore(list, stream);
    });
  }
  Contest contest = {.bytes = what.elements * kFloat + factors, .kernel = work[0], .ceilings = {}};
  if (step == Step::kRestore) {
    contest.bytes = 3 * what.elements * kFloat + factors;
    contest.ceilings = RestoreCeilings(matrix, product, what.elements);
  } else {
    contest.ceilings = ReadCeilings(matrix, what.elements * kFloat);
  }
  if (what.tensors > 1) contest.flat = work[1];
  return Report(contest, bench, state);
}

absl::Status Register(const char* name, Step step, int64_t bytes) {
  return RegisterCases(absl::StrCat("low_rank/", name), {.bytes_per_element = bytes},
                       [step](const Case& what, Bench& bench, benchmark::State& state) {
                         return Measure(step, what, bench, state);
                       });
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register("step:rows", Step::kRows, 5);
  status.Update(Register("step:columns", Step::kColumns, 5));
  status.Update(Register("step:restore", Step::kRestore, 9));
  return status;
}

}  // namespace brigade::benchmarks
