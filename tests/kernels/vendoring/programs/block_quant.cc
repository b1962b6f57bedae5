#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/block_quant/block_quant_cuda.h"
#else
#include "brigade/kernels/block_quant/block_quant_cpu.h"
#endif

namespace brigade::vendored {

using precision::BFloat16;

struct alignas(kernels::kQuantAlignment) Message {
  uint8_t bytes[kernels::QuantBytes(kSize, kernels::QuantFormat::kInt4)];
};

void RunBlockQuant() {
  constexpr auto kFormat = kernels::QuantFormat::kInt4;
  Array<BFloat16> array(Values<BFloat16>(kSize, 1));
  Array<Message> message(std::vector<Message>(1));
  Array<float> back(Values<float>(kSize, 2));
  kernels::QuantizeSegment there = {};
  there.array = array.data();
  there.message = message.data();
  there.size = kSize;
  kernels::DequantizeSegment again = {};
  again.message = message.data();
  again.array = back.data();
  again.size = kSize;
#ifdef ON_CUDA
  Check(kernels::LaunchBlockQuantize<BFloat16>(&there, 1, kFormat, nullptr));
  Check(kernels::LaunchBlockDequantize<float>(&again, 1, kFormat, nullptr));
#else
  kernels::BlockQuantizeRange<BFloat16>(there, kFormat, /*past_caches=*/false, 0, 1024);
  kernels::BlockQuantizeRange<BFloat16>(there, kFormat, /*past_caches=*/true, 1024, kSize);
  kernels::BlockDequantizeRange<float>(again, kFormat, /*past_caches=*/false, 0, kSize);
#endif
  message.Print("block_quant message");
  back.Print("block_quant back");
}

}  // namespace brigade::vendored
