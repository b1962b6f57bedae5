#ifndef BRIGADE_TESTS_EXAMPLES_GPT_PLAIN_PARAMETERS_H_
#define BRIGADE_TESTS_EXAMPLES_GPT_PLAIN_PARAMETERS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "brigade/examples/gpt/transformer.h"

namespace brigade::gpt {

// A model's weights and gradients as plain arrays of T on the CPU: one rank, no optimizer.
template <typename T>
class PlainParameters final : public ModelParameters {
 public:
  PlainParameters(const ModelOptions& model, uint64_t seed) {
    for (const zero::UnitSpec& unit : SpecOf(model)) {
      for (const zero::ParameterSpec& parameter : unit.parameters) {
        std::vector<float> values(static_cast<size_t>(parameter.size));
        InitializeParameter(model, static_cast<int>(weights.size()), seed, absl::MakeSpan(values));
        std::vector<T> narrow(values.size());
        std::transform(values.begin(), values.end(), narrow.begin(), [](float x) { return T(x); });
        weights.push_back(std::move(narrow));
        gradients.emplace_back(values.size());
      }
    }
    written_.resize(weights.size());
  }

  absl::Status Acquire(int, Direction direction) override {
    // The next forward pass begins gradients anew.
    if (direction == Direction::kForward) std::fill(written_.begin(), written_.end(), false);
    return absl::OkStatus();
  }
  absl::Status Release(int) override { return absl::OkStatus(); }
  absl::StatusOr<const void*> Weights(int parameter) override {
    return weights[static_cast<size_t>(parameter)].data();
  }
  absl::StatusOr<nn::Gradient> GradientOf(int, int parameter) override {
    const auto at = static_cast<size_t>(parameter);
    const bool accumulate = written_[at];
    written_[at] = true;
    return nn::Gradient{gradients[at].data(), accumulate};
  }
  absl::Status GradientsReady(int) override { return absl::OkStatus(); }

  std::vector<std::vector<T>> weights, gradients;  // [parameter][i]

 private:
  std::vector<bool> written_;  // in this backward pass
};

}  // namespace brigade::gpt

#endif  // BRIGADE_TESTS_EXAMPLES_GPT_PLAIN_PARAMETERS_H_
