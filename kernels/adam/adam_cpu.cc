// AdamW over a range on the CPU: reads param, m, v and the gradient, writes param, m, v and the
// copy: 24 bytes of state per element, plus gradient and copy.

#include "brigade/kernels/adam/adam_cpu.h"

#include "brigade/kernels/internal/update_range.h"

namespace brigade::kernels {

template <typename Grad, typename Copy>
StepError AdamRange(const AdamSegment& segment, const AdamParameters& parameters, int64_t begin,
                    int64_t end) {
  return UpdateRange<AdamPolicy, Grad, Copy>(segment, parameters, begin, end);
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                                        \
  template StepError AdamRange<Grad, Copy>(const AdamSegment&, const AdamParameters&, int64_t, \
                                           int64_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
