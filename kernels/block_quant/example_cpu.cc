// Numbers as int4 codes and back on the CPU, in the calling thread. It needs block_quant_cpu.cc and
// simd.cc with what they include, and nothing else.
//
// Prints: 192 bytes, back 7.0 -4.0 1.0 0.0

#include <cstdio>

#include "brigade/kernels/block_quant/block_quant_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  constexpr auto kFormat = bk::QuantFormat::kInt4;
  const float array[4] = {7, -3.5f, 1, 0.4f};
  float back[4];
  alignas(bk::kQuantAlignment) unsigned char message[bk::QuantBytes(4, kFormat)];

  // Any threads may take any parts of [0, size) that begin at multiples of 256.
  bk::BlockQuantizeRange<float>({array, message, /*size=*/4}, kFormat, /*past_caches=*/false, 0, 4);
  bk::BlockDequantizeRange<float>({message, back, /*size=*/4}, kFormat, /*past_caches=*/false, 0,
                                  4);
  std::printf("%d bytes, back %.1f %.1f %.1f %.1f\n", static_cast<int>(sizeof(message)), back[0],
              back[1], back[2], back[3]);
}
