// Signs of an array on the CPU, in the calling thread, and what they leave out. It needs
// sign_pack_cpu.cc, grad_check_cpu.cc and simd.cc with what they include, and Highway.
//
// Prints: scale 20.0, error -16.0 8.0 16.0 8.0, back 20.0 20.0 -20.0 20.0

#include <cstdio>

#include "brigade/kernels/grad_check/grad_check_cpu.h"
#include "brigade/kernels/sign_pack/sign_pack_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  const float array[4] = {4, 28, -4, 28};
  float error[4] = {}, back[4];
  alignas(bk::kSignAlignment) unsigned char message[bk::SignBytes(4)];
  const bk::SignPackSegment segment = {array, error, message, /*size=*/4};

  // Any threads may take any whole tiles; then one finds the scale, and all pack.
  double tile_sums[1];
  bk::SignTileSumsRange<float>(segment, 0, 4, tile_sums);
  const float scale = bk::SignScale(bk::GradCheckFinishCpu(tile_sums, /*tiles=*/1), /*count=*/4);
  bk::SignPackRange<float>(segment, scale, 0, 4);

  bk::SignUnpackRange<float>({message, back, /*size=*/4}, {}, /*past_caches=*/false, 0, 4);
  std::printf("scale %.1f, error %.1f %.1f %.1f %.1f, back %.1f %.1f %.1f %.1f\n", scale, error[0],
              error[1], error[2], error[3], back[0], back[1], back[2], back[3]);
}
