#ifndef BRIGADE_EXAMPLES_GPT_UNIT_ACCESS_H_
#define BRIGADE_EXAMPLES_GPT_UNIT_ACCESS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/examples/gpt/transformer.h"

namespace brigade::gpt {

// A unit's weights while it is acquired, and where its gradients go.
class UnitAccess {
 public:
  UnitAccess(ModelParameters& parameters, int unit) : parameters_(parameters), unit_(unit) {}

  // The first error of all look-ups, which then gave null.
  const absl::Status& status() const { return status_; }

  const void* Weights(int parameter) { return Take(parameters_.Weights(parameter)); }
  nn::Gradient GradientOf(int parameter) { return Take(parameters_.GradientOf(unit_, parameter)); }

 private:
  template <typename T>
  T Take(absl::StatusOr<T> found) {
    if (found.ok()) return *std::move(found);
    status_.Update(found.status());
    return T();
  }

  ModelParameters& parameters_;
  const int unit_;
  absl::Status status_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_UNIT_ACCESS_H_
