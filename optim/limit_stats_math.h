#ifndef BRIGADE_OPTIM_LIMIT_STATS_MATH_H_
#define BRIGADE_OPTIM_LIMIT_STATS_MATH_H_

#include <cstdint>

#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::optim {

// What LimitStats looks at; plain, so that it travels as a kernel argument. Device memory.
struct StatsLimit {
  // [lists]: those of a rank's gradients.
  kernels::GradStats* gradients;
  int64_t lists;
  // Those of the arrays that are added to them.
  const kernels::GradStats* others;
  // Its loss scale is that of the gradients.
  const kernels::StepState* state;
  // Of the gradients, beside the loss scale.
  double divisor;
  // Of both norms.
  double limit;
};

BRIGADE_HOST_DEVICE inline void ApplyStatsLimit(const StatsLimit& l) {
  using precision::Mul;
  double sum = 0.0;
  for (int64_t i = 0; i < l.lists; ++i) sum = precision::Add(sum, l.gradients[i].sum_of_squares);
  const double most = Mul(Mul(static_cast<double>(l.state->loss_scale), l.divisor), l.limit);
  const bool others_fit =
      l.others->all_finite != 0 && l.others->sum_of_squares < Mul(l.limit, l.limit);
  if (others_fit && sum < Mul(most, most)) return;
  l.gradients[0] = {__builtin_huge_val(), 0};
}

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_LIMIT_STATS_MATH_H_
