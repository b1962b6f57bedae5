#ifndef BRIGADE_TESTS_SPEC_ONE_BIT_LAMB_H_
#define BRIGADE_TESTS_SPEC_ONE_BIT_LAMB_H_

// The executable specification of 1-bit LAMB (Li et al. 2021, arXiv 2104.06069), of a list of
// tensors that all ranks have whole.
//
// Warm-up    LAMB (lamb.h) without bias corrections, on the ranks' mean gradient. Each tensor has a
//            mean of its trust ratios, which begins at 0.
// Freeze     The second moments stay from here on. Where one is 0, there has never been a gradient:
//            it becomes infinity, over which signs move nothing. One scale for all tensors would
//            leave small momenta nothing but errors: each gets a factor that brings its root mean
//            square to the mean over tensors.
// After it   Each rank makes a momentum of its own gradient; these, times the factors, go through
//            one 1-bit mean (exchanges.h) of all tensors of a list and are divided again. What that
//            changes in the momentum gives a gradient, which goes into second moments that are
//            fresh; where these are smaller than the frozen ones, the ratio rises with their
//            quotient, within bounds, and by a tenth a step.
//
// Each line is one rounding, to float where it is of float; norms are double, summed as in lamb.h.
// In a step that is skipped nothing changes.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "brigade/tests/spec/exchanges.h"
#include "brigade/tests/spec/lamb.h"
#include "brigade/tests/spec/optimizers.h"

namespace brigade::spec {

struct OneBitLambRule {
  LambRule lamb = {};
  // Of the mean of ratios.
  double ratio_beta = 0.9;
  // Bounds of the quotient, and of its change in a step.
  double min_factor = 0.5;
  double max_factor = 4.0;
  double factor_change = 0.1;
};

struct OneBitLambTensor {
  LambTensor x = {};
  // The mean of the warm-up's trust ratios.
  float ratio = 0.0f;
  // From the freeze on: of the momentum on the wire, and of the ratio.
  float scale = 1.0f;
  float factor = 1.0f;
  std::vector<float> fresh_v = {};
};

// A step of the warm-up.
inline void OneBitLambWarmUp(OneBitLambTensor& tensor, const std::vector<float>& mean_gradients,
                             float multiplier, float lr, const OneBitLambRule& rule) {
  GroupStep step;
  step.lr = step.step_size = lr;
  step.inv_sqrt_correction = 1.0f;
  const float trust = LambStep(tensor.x, mean_gradients, multiplier, rule.lamb, step);
  const float part = static_cast<float>(1.0 - rule.ratio_beta) * trust;
  tensor.ratio = std::fma(static_cast<float>(rule.ratio_beta), tensor.ratio, part);
}

// Behind the last step of the warm-up.
inline void OneBitLambFreeze(std::vector<OneBitLambTensor>& tensors) {
  std::vector<double> rms;
  double sum = 0;
  for (const OneBitLambTensor& tensor : tensors) {
    const double mean = LambSumOfSquares(tensor.x.m) / static_cast<double>(tensor.x.m.size());
    rms.push_back(tensor.x.m.empty() ? 0.0 : std::sqrt(mean));
    sum = sum + rms.back();
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    const double mean = sum / static_cast<double>(tensors.size());
    tensors[t].scale = rms[t] == 0.0 ? 1.0f : static_cast<float>(std::min(mean / rms[t], 0x1p20));
    tensors[t].factor = 1.0f;
    for (float& v : tensors[t].x.v) {
      if (v == 0.0f) v = std::numeric_limits<float>::infinity();
    }
    tensors[t].fresh_v = tensors[t].x.v;
  }
}

// The mean of what ranks have, as they exchange it.
using OneBitLambMean = std::function<std::vector<float>(const std::vector<std::vector<float>>&)>;

// A step behind the freeze; gradients by rank and tensor. A list may have some of the tensors that
// were frozen: its exchange is one of its own.
inline void OneBitLambStep(std::vector<OneBitLambTensor>& tensors,
                           const std::vector<std::vector<std::vector<float>>>& gradients,
                           float multiplier, float lr, const OneBitLambRule& rule, bool skip,
                           const OneBitLambMean& exchange) {
  const auto beta1 = static_cast<float>(rule.lamb.beta1);
  const auto beta2 = static_cast<float>(rule.lamb.beta2);
  const auto one_minus_beta1 = static_cast<float>(1.0 - rule.lamb.beta1);
  const auto one_minus_beta2 = static_cast<float>(1.0 - rule.lamb.beta2);
  const auto eps = static_cast<float>(rule.lamb.eps);
  const auto decay = static_cast<float>(rule.lamb.weight_decay);

  std::vector<std::vector<float>> sent;
  for (const auto& of_rank : gradients) {
    std::vector<float>& flat = sent.emplace_back();
    for (size_t t = 0; t < tensors.size(); ++t) {
      for (size_t i = 0; i < of_rank[t].size(); ++i) {
        const float g = of_rank[t][i] * multiplier;
        const float g1 = one_minus_beta1 * g;
        const float m = std::fma(beta1, tensors[t].x.m[i], g1);
        flat.push_back(m * tensors[t].scale);
      }
    }
  }
  const std::vector<float> mean = exchange(sent);
  if (skip) return;

  size_t next = 0;
  for (OneBitLambTensor& tensor : tensors) {
    LambTensor& x = tensor.x;
    std::vector<float> directions, updates;
    float factor = 0.0f;
    for (size_t i = 0; i < x.m.size(); ++i) {
      const float m = mean[next++] / tensor.scale;
      const float change = std::fma(-beta1, x.m[i], m);
      const float g = change / one_minus_beta1;
      const float g2 = one_minus_beta2 * g;
      const float g2g = g2 * g;
      tensor.fresh_v[i] = std::fma(beta2, tensor.fresh_v[i], g2g);
      x.m[i] = m;
      const float frozen_root = std::sqrt(x.v[i]);
      const float frozen = frozen_root + eps;
      const float fresh_root = std::sqrt(tensor.fresh_v[i]);
      const float fresh = fresh_root + eps;
      // Of infinite ones it is NaN, which does not count.
      factor = std::max(factor, frozen / fresh);
      directions.push_back(m / frozen);
      updates.push_back(std::fma(decay, x.param[i], directions.back()));
    }
    if (decay != 0.0f) {
      const double of_update = std::sqrt(LambSumOfSquares(updates));
      const double share = std::sqrt(LambSumOfSquares(directions)) / of_update;
      const float ratio = of_update == 0.0 ? 1.0f : std::min(1.0f, static_cast<float>(share));
      factor = std::fma(factor, ratio, 1.0f - ratio);
    }
    factor = std::clamp(factor, static_cast<float>(rule.min_factor),
                        static_cast<float>(rule.max_factor));
    const float most = tensor.factor * static_cast<float>(1.0 + rule.factor_change);
    const float least = tensor.factor * static_cast<float>(1.0 - rule.factor_change);
    tensor.factor = std::clamp(factor, least, most);
    const float trust = tensor.ratio * tensor.factor;
    const float rate = lr * trust;
    for (size_t i = 0; i < x.param.size(); ++i) {
      x.param[i] = std::fma(-rate, updates[i], x.param[i]);
    }
  }
}

inline void OneBitLambStep(std::vector<OneBitLambTensor>& tensors,
                           const std::vector<std::vector<std::vector<float>>>& gradients,
                           float multiplier, float lr, const OneBitLambRule& rule, bool skip,
                           OneBitState& errors) {
  OneBitLambStep(tensors, gradients, multiplier, lr, rule, skip,
                 [&](const std::vector<std::vector<float>>& sent) {
                   return OneBitMean(sent, skip, Format::kFloat32, errors);
                 });
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_ONE_BIT_LAMB_H_
