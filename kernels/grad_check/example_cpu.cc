// The sum of squares of a gradient on the CPU, and whether all of it is finite. It needs
// grad_check_cpu.cc and simd.cc with what they include, and Highway.
//
// Prints: sum of squares 30.0, all finite

#include <cstdio>

#include "brigade/kernels/grad_check/grad_check_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  const float grad[4] = {1, 2, 3, 4};
  // One for every kGradTile elements of each segment.
  double tile_sums[1];
  // Any threads may take any whole tiles.
  bk::GradTileSumsRange<float>({grad, /*size=*/4}, 0, 4, tile_sums);
  const bk::GradStats stats = bk::GradCheckFinishCpu(tile_sums, /*tiles=*/1);
  std::printf("sum of squares %.1f, %s\n", stats.sum_of_squares,
              stats.all_finite != 0 ? "all finite" : "not finite");
}
