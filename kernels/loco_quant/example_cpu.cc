// The same numbers twice as int4 codes with error feedback on the CPU, in the calling thread: what
// the first message leaves out enters the second one. It needs loco_quant_cpu.cc and simd.cc with
// what they include, and nothing else.
//
// Prints: 7.0 -4.0 1.0 0.0, then 7.0 -3.0 1.0 1.0

#include <cstdio>
#include <cstring>

#include "brigade/kernels/loco_quant/loco_quant_cpu.h"

namespace {

namespace bk = brigade::kernels;

constexpr auto kFormat = bk::QuantFormat::kInt4;

// `size` elements as a message of QuantBytes(size, kFormat), and the error that it leaves, which is
// zeros at first, of QuantBytes(size, kLocoErrors).
void Send(const float* array, void* error, void* message, int64_t size) {
  bk::LocoParameters parameters;
  parameters.beta = 0.25f;
  // Any threads may take any parts of [0, size) that begin at multiples of 256.
  bk::LocoQuantizeRange<float>({array, error, message, size}, kFormat, parameters, 0, size);
}

// What the first four codes of a message stand for.
void Decode(const unsigned char* message, float* values) {
  float maximum;
  std::memcpy(&maximum, message, sizeof(maximum));
  for (int i = 0; i < 4; ++i) {
    const int code = bk::LowCode(message[bk::QuantCodesBegin(4) + i]);
    values[i] = bk::ValueOf<kFormat>(maximum, code);
  }
}

}  // namespace

int main() {
  const float array[4] = {7, -3.5f, 1, 0.4f};
  alignas(bk::kQuantAlignment) unsigned char error[bk::QuantBytes(4, bk::kLocoErrors)] = {};
  alignas(bk::kQuantAlignment) unsigned char message[bk::QuantBytes(4, kFormat)];
  for (int step = 0; step < 2; ++step) {
    Send(array, error, message, 4);
    float v[4];
    Decode(message, v);
    std::printf("%s%.1f %.1f %.1f %.1f", step == 0 ? "" : ", then ", v[0], v[1], v[2], v[3]);
  }
  std::printf("\n");
}
