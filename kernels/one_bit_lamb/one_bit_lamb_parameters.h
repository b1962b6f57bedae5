#ifndef BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_PARAMETERS_H_
#define BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_PARAMETERS_H_

// The constants of the raw launchers (one_bit_lamb_cuda.h) and of the CPU's loops
// (one_bit_lamb_cpu.h) from coefficients, in plain C++. The step and its groups are LAMB's
// (lamb_parameters.h).

#include "brigade/kernels/lamb/lamb_parameters.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_math.h"

namespace brigade::kernels {

// Coefficients of 1-bit LAMB; names and defaults are DeepSpeed's.
struct OneBitLambCoefficients {
  // In [0, 1): of the mean of the warm-up's trust ratios.
  double coeff_beta = 0.9;
  // Bounds of the factor on that mean, the least more than 0 and at most the greatest.
  double factor_max = 4.0;
  double factor_min = 0.5;
  // In [0, 1): how much a factor may change in a step, as a share of the one before.
  double factor_threshold = 0.1;
};

inline OneBitLambConstants MakeOneBitLambConstants(const OneBitLambCoefficients& coefficients) {
  OneBitLambConstants constants = {};
  constants.ratio_beta = static_cast<float>(coefficients.coeff_beta);
  constants.one_minus_ratio_beta = static_cast<float>(1.0 - coefficients.coeff_beta);
  constants.min_factor = static_cast<float>(coefficients.factor_min);
  constants.max_factor = static_cast<float>(coefficients.factor_max);
  constants.least_change = static_cast<float>(1.0 - coefficients.factor_threshold);
  constants.most_change = static_cast<float>(1.0 + coefficients.factor_threshold);
  return constants;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_PARAMETERS_H_
