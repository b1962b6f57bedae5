// What 0/1 Adam does beside Adam, over a range on the CPU: Mask reads 4 bytes an element and writes
// what it changes, Receive and Take read and write 4.

#include "brigade/kernels/zero_one_adam/zero_one_adam_cpu.h"

#include <algorithm>
#include <type_traits>

#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

// Almost no element is without a second moment. A store under a mask makes its line one that memory
// takes back, whether or not the mask is empty, so that gradients are touched only where some of
// these elements have none.
constexpr int64_t kMaskTogether = 256;

BRIGADE_INLINE void MaskRange(const ZeroOneMaskOperation& visits, const ZeroOneMask& s,
                              int64_t begin, int64_t end) {
  const float* const moments = s.second_moment;
  int64_t to;
  for (int64_t from = begin; from < end; from = to) {
    to = std::min(end, from + kMaskTogether);
    int32_t without = 0;
    if (to - from == kMaskTogether) {
      BRIGADE_SIMD_LOOP
      for (int64_t i = 0; i < kMaskTogether; ++i) without |= moments[from + i] == 0.0f ? 1 : 0;
    } else {
      without = 1;
    }
    if (without == 0) continue;
    BRIGADE_SIMD_LOOP
    for (int64_t i = from; i < to; ++i) visits.Visit(s, true, i);
  }
}

}  // namespace

template <typename Operation>
void ZeroOneElementsRange(const Operation& operation, const typename Operation::Segment& segment,
                          int64_t begin, int64_t end) {
  RunSimd([&]() BRIGADE_SIMD_BODY {
    const Operation visits = operation;
    const typename Operation::Segment s = segment;
    const auto of_segment = visits.Begin(s);
    if constexpr (std::is_same_v<Operation, ZeroOneMaskOperation>) {
      MaskRange(visits, s, begin, end);
    } else {
      BRIGADE_SIMD_LOOP
      for (int64_t i = begin; i < end; ++i) visits.Visit(s, of_segment, i);
    }
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
