// The same numbers twice as int4 codes with error feedback on the CPU, in the calling thread: what
// the first message leaves out enters the second one. It needs loco_quant_cpu.cc and simd.cc with
// what they include, and nothing else.
//
// Prints: 7.0 -4.0 1.0 0.0, then 7.0 -3.0 1.0 1.0

#include <cstdio>
#include <cstring>

#include "brigade/kernels/loco_quant/loco_quant_cpu.h"

int main() {
  namespace bk = brigade::kernels;
  constexpr auto kFormat = bk::QuantFormat::kInt4;
  const float array[4] = {7, -3.5f, 1, 0.4f};
  alignas(bk::kQuantAlignment) unsigned char error[bk::QuantBytes(4, bk::kLocoErrors)] = {};
  alignas(bk::kQuantAlignment) unsigned char message[bk::QuantBytes(4, kFormat)];
  float sent[2][4];
  bk::LocoParameters parameters;
  parameters.beta = 0.25f;
  for (int step = 0; step < 2; ++step) {
    // Any threads may take any parts of [0, size) that begin at multiples of 256.
    bk::LocoQuantizeRange<float>({array, error, message, /*size=*/4}, kFormat, parameters, 0, 4);
    float maximum;
    std::memcpy(&maximum, message, sizeof(maximum));
    for (int i = 0; i < 4; ++i) {
      const int code = bk::LowCode(message[bk::QuantCodesBegin(4) + i]);
      sent[step][i] = bk::ValueOf<kFormat>(maximum, code);
    }
  }
  std::printf("%.1f %.1f %.1f %.1f, then %.1f %.1f %.1f %.1f\n", sent[0][0], sent[0][1], sent[0][2],
              sent[0][3], sent[1][0], sent[1][1], sent[1][2], sent[1][3]);
}
