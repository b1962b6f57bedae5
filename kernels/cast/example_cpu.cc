// A cast from bfloat16 to float on the CPU, in the calling thread. It needs cast_cpu.cc,
// simd.cc and nontemporal_store.cc with what they include, and nothing else.
//
// Prints: target 2.5 5.0 7.5 10.0

#include <cstdio>

#include "brigade/kernels/cast/cast_cpu.h"
#include "brigade/kernels/nontemporal_store.h"

int main() {
  namespace bk = brigade::kernels;
  using brigade::precision::BFloat16;
  const BFloat16 source[4] = {BFloat16(1), BFloat16(2), BFloat16(3), BFloat16(4)};
  float target[4];
  const float scale = 2.5f;

  const bk::CastSegment segment = {source, target, /*size=*/4};
  // Any threads may take any parts of [0, size); each that stores past the caches fences once,
  // after its last part.
  bk::CastRange<BFloat16, float>(segment, &scale, /*accumulate=*/false, /*past_caches=*/true, 0, 4);
  bk::NontemporalStoreFence();
  std::printf("target %.1f %.1f %.1f %.1f\n", target[0], target[1], target[2], target[3]);
}
