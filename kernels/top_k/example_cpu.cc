// The two elements of greatest magnitude, and what is left, on the CPU. It needs top_k_cpu.cc and
// simd.cc with what they include, and nothing else.
//
// Prints: -4.0 at 1, 3.0 at 2; left 1.0 0.0 0.0 3.0

#include <cstdint>
#include <cstdio>

#include "brigade/kernels/top_k/top_k_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  // Of equal magnitudes the first.
  float array[4] = {1, -4, 3, 3}, values[2];
  int32_t indices[2];
  static uint32_t workspace[bk::TopKWorkspaceSize(4)];
  const bk::TopKSegment segment = {array, values, indices, workspace, /*size=*/4, /*k=*/2};
  // In the calling thread; the parts of it are for several.
  bk::TopKArray<float>(segment, /*clear=*/true);
  std::printf("%.1f at %d, %.1f at %d; left %.1f %.1f %.1f %.1f\n", values[0], indices[0],
              values[1], indices[1], array[0], array[1], array[2], array[3]);
}
