// The mean of two ranks' messages on the CPU, in the calling thread. It needs
// dequant_reduce_cpu.cc, block_quant_cpu.cc and simd.cc with what they include, and nothing else.
//
// Prints: mean 0.0 5.0 7.0 -7.0

#include <cstdio>

#include "brigade/kernels/block_quant/block_quant_cpu.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce_cpu.h"

namespace {

namespace bk = brigade::kernels;

constexpr auto kFormat = bk::QuantFormat::kInt4;

// The mean of so many ranks' messages, which lie `stride` bytes apart.
void Mean(const void* messages, int ranks, int64_t stride, float* mean, int64_t size) {
  bk::DequantReduceParameters parameters;
  parameters.ranks = ranks;
  parameters.stride = stride;
  parameters.factor = 1.0f / static_cast<float>(ranks);
  // Any threads may take any parts of [0, size) that begin at multiples of 256.
  bk::DequantReduceRange<float>({messages, mean, size}, kFormat, parameters,
                                /*past_caches=*/false, 0, size);
}

}  // namespace

int main() {
  constexpr int64_t kStride = bk::QuantBytes(4, kFormat);
  const float arrays[2][4] = {{7, 3, 7, -7}, {-7, 7, 7, -7}};
  float mean[4];
  alignas(bk::kQuantAlignment) unsigned char messages[2 * kStride];
  for (int rank = 0; rank < 2; ++rank) {
    bk::BlockQuantizeRange<float>({arrays[rank], messages + rank * kStride, /*size=*/4}, kFormat,
                                  /*past_caches=*/false, 0, 4);
  }
  Mean(messages, 2, kStride, mean, 4);
  std::printf("mean %.1f %.1f %.1f %.1f\n", mean[0], mean[1], mean[2], mean[3]);
}
