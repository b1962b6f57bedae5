// SGD with momentum over a range on the CPU: reads param, momentum and the gradient, writes param,
// momentum and the copy, 16 bytes of state per element, plus gradient and copy.

#include "brigade/kernels/sgd/sgd_cpu.h"

#include "brigade/kernels/internal/update_range.h"

namespace brigade::kernels {

template <typename Grad, typename Copy>
StepError SgdRange(const SgdSegment& segment, const SgdParameters& parameters, int64_t begin,
                   int64_t end) {
  return UpdateRange<SgdPolicy, Grad, Copy>(segment, parameters, begin, end);
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                                     \
  template StepError SgdRange<Grad, Copy>(const SgdSegment&, const SgdParameters&, int64_t, \
                                          int64_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
