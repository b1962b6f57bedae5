// The steps of PowerSGD on one matrix, on the CPU: a factor of rank 1 and what it leaves out. It
// needs orthogonalize_cpu.cc, simd.cc and nontemporal_store.cc with what they include.
//
// Prints: product 2.7 0.3 0.9 0.1, error 0.3 -0.3 -0.9 0.9

#include <cstdio>

#include "brigade/kernels/orthogonalize/orthogonalize_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  float matrix[4] = {3, 0, 0, 1}, p[2], q[2] = {0.5f, 0.5f}, product[4];
  const bk::LowRankSegment segment = {matrix,        p,         q, product, /*workspace=*/nullptr,
                                      /*rows=*/2,
                                      /*columns=*/2, /*rank=*/1};
  // Any threads may take any rows.
  bk::LowRankRowsRange(segment, /*past_caches=*/false, 0, 2);
  // With several ranks: the sum of p over them.
  bk::OrthogonalizeMatrix({p, /*rows=*/2, /*columns=*/1}, /*epsilon=*/1e-8);
  bk::LowRankTilesRange(segment, /*past_caches=*/false, 0, 2);
  bk::LowRankColumnsFinish(segment);
  // With several ranks: the mean of q over them.
  bk::LowRankRestoreRange(segment, /*past_caches=*/false, 0, 2);
  std::printf("product %.1f %.1f %.1f %.1f, error %.1f %.1f %.1f %.1f\n", product[0], product[1],
              product[2], product[3], matrix[0], matrix[1], matrix[2], matrix[3]);
}
