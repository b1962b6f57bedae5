// Lion over a range on the CPU: reads param, m and the gradient, writes param, m and the copy, 16
// bytes of state per element, plus gradient and copy.

#include "brigade/kernels/lion/lion_cpu.h"

#include "brigade/kernels/internal/update_range.h"

namespace brigade::kernels {

template <typename Grad, typename Copy>
StepError LionRange(const LionSegment& segment, const LionParameters& parameters, int64_t begin,
                    int64_t end) {
  return UpdateRange<LionPolicy, Grad, Copy>(segment, parameters, begin, end);
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                                        \
  template StepError LionRange<Grad, Copy>(const LionSegment&, const LionParameters&, int64_t, \
                                           int64_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
