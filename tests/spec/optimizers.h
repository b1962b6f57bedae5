#ifndef BRIGADE_TESTS_SPEC_OPTIMIZERS_H_
#define BRIGADE_TESTS_SPEC_OPTIMIZERS_H_

// The executable specification, 2 of 6: the update of one element.
//
// Every line is one rounding to float, std::fma included; a compiler must not fuse anything else.
// Sources: Adam, Kingma and Ba 2015, algorithm 1 (with epsilon outside the corrected square root);
// AdamW, Loshchilov and Hutter 2019, algorithm 2; SGD with momentum, Sutskever et al. 2013 in the
// form with dampening that PyTorch documents; Lion, Chen et al. 2023 (arXiv 2302.06675), algorithm
// 2.

#include <cmath>
#include <cstdint>

namespace brigade::spec {

// Hyper-parameters of a parameter group as the user states them.
struct AdamRule {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  // AdamW; false: the decay is part of the gradient (Adam with L2).
  bool decoupled = true;
};

struct SgdRule {
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool decoupled = false;
};

struct LionRule {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.0;
};

// What a step fixes for every element of a group; made by step_control.h.
struct GroupStep {
  float lr = 0;
  float step_size = 0;            // lr / (1 - beta1^t)
  float inv_sqrt_correction = 1;  // 1 / sqrt(1 - beta2^t)
};

struct AdamElement {
  float param;
  float m;
  float v;
};

inline AdamElement AdamUpdate(AdamElement x, float raw_gradient, float multiplier,
                              const AdamRule& rule, const GroupStep& step) {
  const float beta1 = static_cast<float>(rule.beta1);
  const float beta2 = static_cast<float>(rule.beta2);
  const float one_minus_beta1 = static_cast<float>(1.0 - rule.beta1);
  const float one_minus_beta2 = static_cast<float>(1.0 - rule.beta2);
  const float eps = static_cast<float>(rule.eps);
  const float decay = static_cast<float>(rule.weight_decay);

  float g = raw_gradient * multiplier;
  if (!rule.decoupled) g = std::fma(decay, x.param, g);

  const float g1 = one_minus_beta1 * g;
  x.m = std::fma(beta1, x.m, g1);
  const float g2 = one_minus_beta2 * g;
  const float g2g = g2 * g;
  x.v = std::fma(beta2, x.v, g2g);

  const float root = std::sqrt(x.v);
  const float denominator = std::fma(root, step.inv_sqrt_correction, eps);
  const float direction = x.m / denominator;
  if (rule.decoupled) {
    const float decay_factor = std::fma(-step.lr, decay, 1.0f);
    x.param = x.param * decay_factor;
  }
  x.param = std::fma(-step.step_size, direction, x.param);
  return x;
}

// An element whose second moment stays, as 1-bit Adam has it (Tang et al. 2021, arXiv 2102.02888):
// the moment is that of all ranks. An element that had no gradient before has no second moment, and
// stays.
inline float FrozenAdamUpdate(float param, float m, float v, const AdamRule& rule,
                              const GroupStep& step) {
  const float decay_factor = std::fma(-step.lr, static_cast<float>(rule.weight_decay), 1.0f);
  param = param * decay_factor;
  if (v == 0.0f) return param;
  const float eps = static_cast<float>(rule.eps);
  const float direction = m / std::fma(std::sqrt(v), step.inv_sqrt_correction, eps);
  return std::fma(-step.step_size, direction, param);
}

// An element in a step of 0/1 Adam that keeps its second moment (Lu et al. 2022, arXiv 2202.06009).
// An element that has none, for want of gradients, takes none from others' signs.
inline AdamElement KeptVarianceUpdate(AdamElement x, float gradient, const AdamRule& rule,
                                      float lr) {
  const float decay_factor = std::fma(-lr, static_cast<float>(rule.weight_decay), 1.0f);
  if (x.v == 0.0f) gradient = 0.0f;
  const float added = static_cast<float>(1.0 - rule.beta1) * gradient;
  x.m = std::fma(static_cast<float>(rule.beta1), x.m, added);
  const float direction = x.m / (std::sqrt(x.v) + static_cast<float>(rule.eps));
  x.param = std::fma(-lr, direction, x.param * decay_factor);
  return x;
}

struct SgdElement {
  float param;
  float momentum;
};

// `step` counts updates from 1; on the first one the gradient enters the momentum undampened.
inline SgdElement SgdUpdate(SgdElement x, float raw_gradient, float multiplier, const SgdRule& rule,
                            float lr, int64_t step) {
  const float momentum = static_cast<float>(rule.momentum);
  const float one_minus_dampening = step == 1 ? 1.0f : static_cast<float>(1.0 - rule.dampening);
  const float decay = static_cast<float>(rule.weight_decay);

  float g = raw_gradient * multiplier;
  if (!rule.decoupled) g = std::fma(decay, x.param, g);
  if (rule.momentum != 0.0) {
    const float dampened = one_minus_dampening * g;
    x.momentum = std::fma(momentum, x.momentum, dampened);
    g = rule.nesterov ? std::fma(momentum, x.momentum, g) : x.momentum;
  }
  if (rule.decoupled) {
    const float decay_factor = std::fma(-lr, decay, 1.0f);
    x.param = x.param * decay_factor;
  }
  x.param = std::fma(-lr, g, x.param);
  return x;
}

struct LionElement {
  float param;
  float m;
};

inline LionElement LionUpdate(LionElement x, float raw_gradient, float multiplier,
                              const LionRule& rule, float lr) {
  const float g = raw_gradient * multiplier;

  const float g1 = static_cast<float>(1.0 - rule.beta1) * g;
  const float direction = std::fma(static_cast<float>(rule.beta1), x.m, g1);
  const float g2 = static_cast<float>(1.0 - rule.beta2) * g;
  x.m = std::fma(static_cast<float>(rule.beta2), x.m, g2);

  const float decay_factor = std::fma(-lr, static_cast<float>(rule.weight_decay), 1.0f);
  x.param = x.param * decay_factor;
  // 0 and NaN are signs of their own.
  const bool has_sign = direction > 0.0f || direction < 0.0f;
  const float sign = has_sign ? std::copysign(1.0f, direction) : direction;
  x.param = std::fma(-lr, sign, x.param);
  return x;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_OPTIMIZERS_H_
