#ifndef BRIGADE_ZERO_STEP_H_
#define BRIGADE_ZERO_STEP_H_

// What the forward and the backward pass of a model see of a training step: the weights of one unit
// (a layer) at a time, and where its gradients go.

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/precision/dtype.h"

namespace brigade::zero {

// The direction in which units are used: in their order, or in the reverse order, or in that of
// ZeroOptions::backward_units.
enum class Pass : uint8_t { kForward, kBackward };

// Where the backward pass writes the gradient of a parameter.
struct GradientTarget {
  // Device memory, [size] of the parameter's type.
  void* data = nullptr;
  // Another unit has written its part of the gradient: add to what is there.
  bool accumulate = false;
};

// Where a model's weights come from and its gradients go: a ZeroOptimizer in training, plain arrays
// in a test of the model alone. Units and parameters are named by their index in the ModelSpec.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // Around each use of a unit's weights, in a forward and in a backward pass (UnitScope).
  virtual absl::Status Acquire(int unit, Pass pass) = 0;
  virtual absl::Status Release(int unit) = 0;

  // The weights of a parameter that an acquired unit uses: device memory, [size] of its type, which
  // work on the compute stream may read if it is enqueued before the Release.
  virtual absl::StatusOr<const void*> Weights(int parameter) const = 0;
  // The type of an existing parameter's weights and gradient.
  virtual precision::DType TypeOf(int parameter) const = 0;

  // Memory for the unit's part of a parameter's gradient.
  virtual absl::StatusOr<GradientTarget> Gradient(int unit, int parameter) = 0;
  // All work that writes the unit's gradients is enqueued on the compute stream.
  virtual absl::Status GradientsReady(int unit) = 0;
};

// A unit that is acquired from the scope's creation to its end, an early return included.
//
//   UnitScope unit(source, index, Pass::kForward);
//   const void* const weights = unit.weights(parameter);
//   BRIGADE_RETURN_IF_ERROR(unit.status());
//   ... enqueue work that reads the weights ...
//   return unit.Release();
class UnitScope {
 public:
  UnitScope(ParameterSource& source, int unit, Pass pass);
  ~UnitScope();

  UnitScope(const UnitScope&) = delete;
  UnitScope& operator=(const UnitScope&) = delete;

  // The first error of the acquisition and of the look-ups so far. A look-up after an error, and
  // one that fails, gives null.
  const absl::Status& status() const { return status_; }

  // InvalidArgument naming both types if T, where it is not void, is not the type of the weights.
  template <typename T = void>
  const T* weights(int parameter) {
    if constexpr (std::is_void_v<T>) {
      return Weights(parameter);
    } else {
      return static_cast<const T*>(WeightsOf(parameter, precision::kDType<T>));
    }
  }
  GradientTarget gradient(int parameter);

  // Ends the acquisition before the scope's end. Gives status(), which includes the release's own
  // error; an error of the release at the scope's end is left to the source's next call.
  absl::Status Release();

 private:
  const void* Weights(int parameter);
  const void* WeightsOf(int parameter, precision::DType dtype);

  ParameterSource& source_;
  const int unit_;
  absl::Status status_;
  bool acquired_;
};

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_STEP_H_
