#include "brigade/kernels/dequant_reduce/dequant_reduce_math.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/dequant_reduce/dequant_reduce_cuda.h"
#else
#include "brigade/kernels/dequant_reduce/dequant_reduce_cpu.h"
#endif

namespace brigade::vendored {

constexpr auto kFormat = kernels::QuantFormat::kInt8;

// The maxima of 8 blocks, which fill half of their line, and codes.
struct alignas(kernels::kQuantAlignment) Message {
  float maxima[16];
  uint8_t codes[8 * kernels::kQuantBlock];
};
static_assert(sizeof(Message) == kernels::QuantBytes(kSize, kFormat), "a message");

struct alignas(kernels::kQuantAlignment) Sum {
  uint8_t bytes[kernels::QuantBytes(kSize, kernels::QuantFormat::kInt4)];
};

void RunDequantReduce() {
  std::vector<Message> sent(3);
  for (size_t rank = 0; rank < sent.size(); ++rank) {
    for (int i = 0; i < 8; ++i) sent[rank].maxima[i] = 0.5f + static_cast<float>(i + rank);
    for (size_t i = 0; i < sizeof(sent[rank].codes); ++i) {
      sent[rank].codes[i] = static_cast<uint8_t>(i * (7 + rank) % 255 + 129);
    }
  }
  Array<Message> messages(sent);
  Array<Sum> sum(std::vector<Sum>(1));
  kernels::DequantReduceParameters parameters;
  parameters.ranks = 3;
  parameters.stride = sizeof(Message);
  parameters.factor = 0.75f;
  kernels::DequantReduceSegment segment = {};
  segment.messages = messages.data();
  segment.target = sum.data();
  segment.size = kSize;
#ifdef ON_CUDA
  Check(kernels::LaunchDequantReduce<kernels::Int4Message>(&segment, 1, kFormat, parameters,
                                                           nullptr));
#else
  kernels::DequantReduceRange<kernels::Int4Message>(segment, kFormat, parameters,
                                                    /*past_caches=*/false, 0, kSize);
#endif
  sum.Print("dequant_reduce sum");
}

}  // namespace brigade::vendored
