#include "brigade/kernels/orthogonalize/orthogonalize_math.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/orthogonalize/orthogonalize_cuda.h"
#else
#include "brigade/kernels/orthogonalize/orthogonalize_cpu.h"
#endif

namespace brigade::vendored {

void RunOrthogonalize() {
  constexpr int64_t kRows = 301, kColumns = 67;
  constexpr int32_t kRank = 3;
  Array<float> matrix(Values<float>(kRows * kColumns, 1));
  Array<float> p(std::vector<float>(kRows * kRank));
  Array<float> q(Values<float>(kColumns * kRank, 2));
  Array<float> product(std::vector<float>(kRows * kColumns));
  Array<float> workspace(std::vector<float>(kernels::LowRankWorkspaceSize(kRows, kColumns, kRank)));
  kernels::LowRankSegment segment = {};
  segment.matrix = matrix.data();
  segment.p = p.data();
  segment.q = q.data();
  segment.product = product.data();
  segment.workspace = workspace.data();
  segment.rows = kRows;
  segment.columns = kColumns;
  segment.rank = kRank;
  kernels::OrthogonalizeSegment columns = {};
  columns.matrix = p.data();
  columns.rows = kRows;
  columns.columns = kRank;
#ifdef ON_CUDA
  Check(kernels::LaunchLowRankRows(&segment, 1, nullptr));
  Check(kernels::LaunchOrthogonalize(&columns, 1, 1e-8, nullptr));
  Check(kernels::LaunchLowRankColumns(&segment, 1, nullptr));
  Check(kernels::LaunchLowRankRestore(&segment, 1, nullptr));
#else
  kernels::LowRankRowsRange(segment, /*past_caches=*/false, 0, kRows);
  kernels::OrthogonalizeMatrix(columns, 1e-8);
  kernels::LowRankTilesRange(segment, /*past_caches=*/false, 0, kRows);
  kernels::LowRankColumnsFinish(segment);
  kernels::LowRankRestoreRange(segment, /*past_caches=*/false, 0, kRows);
#endif
  p.Print("orthogonalize p");
  q.Print("orthogonalize q");
  product.Print("orthogonalize product");
  matrix.Print("orthogonalize error");
}

}  // namespace brigade::vendored
