#ifndef BRIGADE_EXAMPLES_GPT_ZERO_PARAMETERS_H_
#define BRIGADE_EXAMPLES_GPT_ZERO_PARAMETERS_H_

#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::gpt {

// Weights and gradients of a ZeroOptimizer.
class ZeroParameters final : public ModelParameters {
 public:
  explicit ZeroParameters(zero::ZeroOptimizer& zero) : zero_(zero) {}

  absl::Status Acquire(int unit, Direction direction) override {
    return zero_.Acquire(
        unit, direction == Direction::kForward ? zero::Pass::kForward : zero::Pass::kBackward);
  }
  absl::Status Release(int unit) override { return zero_.Release(unit); }
  absl::StatusOr<const void*> Weights(int parameter) override { return zero_.Weights(parameter); }
  absl::StatusOr<nn::Gradient> GradientOf(int unit, int parameter) override {
    BRIGADE_ASSIGN_OR_RETURN(auto target, zero_.Gradient(unit, parameter));
    return nn::Gradient{target.data, target.accumulate};
  }
  absl::Status GradientsReady(int unit) override { return zero_.GradientsReady(unit); }

 private:
  zero::ZeroOptimizer& zero_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_ZERO_PARAMETERS_H_
