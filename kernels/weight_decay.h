#ifndef BRIGADE_KERNELS_WEIGHT_DECAY_H_
#define BRIGADE_KERNELS_WEIGHT_DECAY_H_

namespace brigade::kernels {

// How an optimizer applies weight decay.
enum class WeightDecayMode {
  // param *= 1 - lr * weight_decay (AdamW).
  kDecoupled,
  // grad += weight_decay * param (L2 regularisation).
  kCoupled,
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_WEIGHT_DECAY_H_
