// A value everywhere in an array of the CPU, in the calling thread. It needs fill_cpu.cc, simd.cc
// and nontemporal_store.cc with what they include, and nothing else.
//
// Prints: data 1.25 1.25 1.25 1.25

#include <cstdio>

#include "brigade/kernels/fill/fill_cpu.h"
#include "brigade/kernels/nontemporal_store.h"

int main() {
  namespace bk = brigade::kernels;
  float data[4];
  // Any threads may take any parts of [0, size); each that stores past the caches fences once,
  // after its last part.
  bk::FillRange({data, /*size=*/4}, bk::MakeFillPattern(1.25f), sizeof(float),
                /*past_caches=*/true, 0, 4);
  bk::NontemporalStoreFence();
  std::printf("data %.2f %.2f %.2f %.2f\n", data[0], data[1], data[2], data[3]);
}
