// What 0/1 Adam does beside Adam, over a range on the CPU: Mask reads 4 bytes an element and writes
// what it changes, Receive and Take read and write 4.

#include "brigade/kernels/zero_one_adam/zero_one_adam_cpu.h"

#include "brigade/kernels/simd.h"

namespace brigade::kernels {

template <typename Operation>
void ZeroOneElementsRange(const Operation& operation, const typename Operation::Segment& segment,
                          int64_t begin, int64_t end) {
  RunSimd([&]() BRIGADE_SIMD_BODY {
    const Operation visits = operation;
    const typename Operation::Segment s = segment;
    const auto of_segment = visits.Begin(s);
    BRIGADE_SIMD_LOOP
    for (int64_t i = begin; i < end; ++i) visits.Visit(s, of_segment, i);
  });
}

#define BRIGADE_INSTANTIATE(Operation)                                                       \
  template void ZeroOneElementsRange<Operation>(const Operation&, const Operation::Segment&, \
                                                int64_t, int64_t);
BRIGADE_INSTANTIATE(ZeroOneMaskOperation)
BRIGADE_INSTANTIATE(ZeroOneReceiveOperation)
BRIGADE_INSTANTIATE(ZeroOneTakeOperation)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
