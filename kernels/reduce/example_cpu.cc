// The sum of two arrays of the CPU, in the calling thread. It needs reduce_cpu.cc, simd.cc and
// nontemporal_store.cc with what they include, and nothing else.
//
// Prints: sum 11.0 22.0 33.0 44.0

#include <cstdio>

#include "brigade/kernels/nontemporal_store.h"
#include "brigade/kernels/reduce/reduce_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  const float a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40};
  float sum[4];
  const void* const sources[] = {a, b};
  void* const targets[] = {sum};
  const bk::ReduceLists lists = {sources, 2, targets, 1, /*carry=*/{}};
  // Any threads may take any parts of [0, size); each that stores past the caches fences once,
  // after its last part.
  bk::ReduceRange<float>(lists, bk::ReduceOp::kSum, /*past_caches=*/true, 0, 4);
  bk::NontemporalStoreFence();
  std::printf("sum %.1f %.1f %.1f %.1f\n", sum[0], sum[1], sum[2], sum[3]);
}
