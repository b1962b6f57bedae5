#ifndef BRIGADE_TESTS_SPEC_LAMB_H_
#define BRIGADE_TESTS_SPEC_LAMB_H_

// The executable specification of LAMB, You et al. 2020 (arXiv 1904.00962), algorithm 2: a step of
// a whole tensor. Epsilon stands outside the bias-corrected root, as for Adam in optimizers.h; the
// bounds are those of the ratio.
//
// Every line is one rounding, std::fma included. Sums of squares are of double: element i of each
// 8192 enters lane i modulo 256, lanes are added by halving; sums of 8192 enter 32 lanes likewise.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "brigade/tests/spec/optimizers.h"

namespace brigade::spec {

struct LambRule {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.0;
  double min_trust = 0.01;
  double max_trust = 10.0;
};

struct LambTensor {
  std::vector<float> param, m, v;
};

inline double LambHalved(std::vector<double> lanes) {
  for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
  }
  return lanes[0];
}

inline double LambSumOfSquares(const std::vector<float>& x) {
  std::vector<double> of_tiles(32, 0.0);
  for (size_t begin = 0; begin < x.size(); begin += 8192) {
    std::vector<double> lanes(256, 0.0);
    for (size_t i = begin; i < std::min(x.size(), begin + 8192); ++i) {
      const double wide = x[i];
      lanes[i % 256] = std::fma(wide, wide, lanes[i % 256]);
    }
    const size_t lane = begin / 8192 % 32;
    of_tiles[lane] = of_tiles[lane] + LambHalved(lanes);
  }
  return LambHalved(of_tiles);
}

// Returns the trust ratio.
inline float LambStep(LambTensor& x, const std::vector<float>& gradients, float multiplier,
                      const LambRule& rule, const GroupStep& step) {
  const float beta1 = static_cast<float>(rule.beta1);
  const float beta2 = static_cast<float>(rule.beta2);
  const float one_minus_beta1 = static_cast<float>(1.0 - rule.beta1);
  const float one_minus_beta2 = static_cast<float>(1.0 - rule.beta2);
  const float eps = static_cast<float>(rule.eps);
  const float decay = static_cast<float>(rule.weight_decay);
  const float correction = step.lr != 0.0f ? step.step_size / step.lr : 1.0f;

  std::vector<float> update;
  for (size_t i = 0; i < x.param.size(); ++i) {
    const float g = gradients[i] * multiplier;
    const float g1 = one_minus_beta1 * g;
    x.m[i] = std::fma(beta1, x.m[i], g1);
    const float g2 = one_minus_beta2 * g;
    const float g2g = g2 * g;
    x.v[i] = std::fma(beta2, x.v[i], g2g);
    const float root = std::sqrt(x.v[i]);
    const float denominator = std::fma(root, step.inv_sqrt_correction, eps);
    const float corrected = x.m[i] * correction;
    const float direction = corrected / denominator;
    update.push_back(std::fma(decay, x.param[i], direction));
  }
  const double of_param = LambSumOfSquares(x.param);
  const double of_update = LambSumOfSquares(update);
  float trust = 1.0f;
  if (of_param != 0.0 && of_update != 0.0) {
    const double param_norm = std::sqrt(of_param);
    const double update_norm = std::sqrt(of_update);
    const double quotient = param_norm / update_norm;
    trust = static_cast<float>(quotient);
    trust = std::min(std::max(trust, static_cast<float>(rule.min_trust)),
                     static_cast<float>(rule.max_trust));
  }
  const float rate = step.lr * trust;
  for (size_t i = 0; i < x.param.size(); ++i) x.param[i] = std::fma(-rate, update[i], x.param[i]);
  return trust;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_LAMB_H_
