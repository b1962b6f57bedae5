#ifndef BRIGADE_TESTS_EXAMPLES_GPT_PLAIN_PARAMETERS_H_
#define BRIGADE_TESTS_EXAMPLES_GPT_PLAIN_PARAMETERS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "brigade/examples/gpt/model.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/step.h"

namespace brigade::gpt {

// A model's weights and gradients as plain arrays of T on the CPU: one rank, no optimizer.
template <typename T>
class PlainParameters final : public zero::ParameterSource {
 public:
  PlainParameters(const ModelOptions& model, uint64_t seed) {
    for (const zero::UnitSpec& unit : SpecOf(model)) {
      for (const zero::ParameterSpec& parameter : unit.parameters) {
        std::vector<float> values(static_cast<size_t>(parameter.size));
        InitializeParameter(model, static_cast<int>(weights.size()), seed, {},
                            absl::MakeSpan(values));
        std::vector<T> narrow(values.size());
        std::transform(values.begin(), values.end(), narrow.begin(), [](float x) { return T(x); });
        weights.push_back(std::move(narrow));
        gradients.emplace_back(values.size());
      }
    }
    written_.resize(weights.size());
  }

  absl::Status Acquire(int, zero::Pass pass) override {
    // The next forward pass begins gradients anew.
    if (pass == zero::Pass::kForward) std::fill(written_.begin(), written_.end(), false);
    return absl::OkStatus();
  }
  absl::Status Release(int) override { return absl::OkStatus(); }
  absl::StatusOr<const void*> Weights(int parameter) const override {
    return weights[static_cast<size_t>(parameter)].data();
  }
  precision::DType TypeOf(int) const override { return precision::kDType<T>; }
  absl::StatusOr<zero::GradientTarget> Gradient(int, int parameter) override {
    const auto at = static_cast<size_t>(parameter);
    const bool accumulate = written_[at];
    written_[at] = true;
    return zero::GradientTarget{gradients[at].data(), accumulate};
  }
  absl::Status GradientsReady(int) override { return absl::OkStatus(); }

  // [parameter][i].
  std::vector<std::vector<T>> weights, gradients;

 private:
  // [parameter]: whether this backward pass has written to the gradient.
  std::vector<bool> written_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_TESTS_EXAMPLES_GPT_PLAIN_PARAMETERS_H_
