#ifndef BRIGADE_KERNELS_WEIGHT_DECAY_H_
#define BRIGADE_KERNELS_WEIGHT_DECAY_H_

namespace brigade::kernels {

// How an optimizer applies weight decay.
enum class WeightDecayMode {
  kDecoupled,  // param *= 1 - lr * weight_decay (AdamW)
  kCoupled,    // grad += weight_decay * param (L2 regularisation)
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_WEIGHT_DECAY_H_
