#include "brigade/kernels/loco_quant/loco_quant_math.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/loco_quant/loco_quant_cuda.h"
#else
#include "brigade/kernels/loco_quant/loco_quant_cpu.h"
#endif

namespace brigade::vendored {

using precision::BFloat16;

struct alignas(kernels::kQuantAlignment) LocoMessage {
  uint8_t bytes[kernels::QuantBytes(kSize, kernels::QuantFormat::kInt4)];
};
struct alignas(kernels::kQuantAlignment) LocoErrors {
  uint8_t bytes[kernels::QuantBytes(kSize, kernels::kLocoErrors)];
};

void RunLocoQuant() {
  constexpr auto kFormat = kernels::QuantFormat::kInt4;
  Array<BFloat16> array(Values<BFloat16>(kSize, 1));
  Array<LocoErrors> error(std::vector<LocoErrors>(1));
  Array<LocoMessage> message(std::vector<LocoMessage>(1));
  kernels::LocoSegment segment = {};
  segment.array = array.data();
  segment.error = error.data();
  segment.message = message.data();
  segment.size = kSize;
  kernels::LocoParameters parameters;
  for (int step = 0; step < 3; ++step) {
#ifdef ON_CUDA
    Check(kernels::LaunchLocoQuantize<BFloat16>(&segment, 1, kFormat, parameters, nullptr));
#else
    kernels::LocoQuantizeRange<BFloat16>(segment, kFormat, parameters, 1024, kSize);
    kernels::LocoQuantizeRange<BFloat16>(segment, kFormat, parameters, 0, 1024);
#endif
  }
  message.Print("loco_quant message");
  error.Print("loco_quant error");
}

}  // namespace brigade::vendored
