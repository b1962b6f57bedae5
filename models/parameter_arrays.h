#ifndef BRIGADE_MODELS_PARAMETER_ARRAYS_H_
#define BRIGADE_MODELS_PARAMETER_ARRAYS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step.h"

namespace brigade::models {

// A model's weights as arrays of one device, without an optimizer: to predict, to generate, to
// test. Gradients, where there are any, are of the same type. A parameter whose spec has a type of
// its own has that.
//
// Memory       Parameters: each rounded up to 256 bytes; as much again of gradients, of those that
//              are trainable. At Create.
class ParameterArrays final : public zero::ParameterSource {
 public:
  struct Options {
    precision::DType dtype = precision::DType::kBFloat16;
    bool gradients = false;
  };

  static absl::StatusOr<ParameterArrays> Create(const zero::ModelSpec& model,
                                                const Options& options, device::Context& context);

  // What Create allocates for the weights; the gradients are as large, of what is trained.
  static int64_t WeightBytes(const zero::ModelSpec& model, precision::DType dtype);

  int size() const { return static_cast<int>(sizes_.size()); }
  int64_t size_of(int parameter) const { return sizes_[static_cast<size_t>(parameter)]; }
  precision::DType dtype() const { return options_.dtype; }
  precision::DType type_of(int parameter) const { return types_[static_cast<size_t>(parameter)]; }
  int64_t bytes_of(int parameter) const {
    return size_of(parameter) * precision::SizeOf(type_of(parameter));
  }
  // Device memory, [size_of(parameter)]; gradients are null without one.
  void* weights(int parameter) const { return At(weights_, weight_offsets_, parameter); }
  void* gradient(int parameter) const { return At(gradients_, gradient_offsets_, parameter); }

  // The next backward pass writes gradients, those after it add to them.
  void BeginGradients() { written_.assign(sizes_.size(), false); }

  absl::Status Acquire(int unit, zero::Pass pass) override;
  absl::Status Release(int unit) override;
  absl::StatusOr<const void*> Weights(int parameter) const override;
  precision::DType TypeOf(int parameter) const override;
  absl::StatusOr<zero::GradientTarget> Gradient(int unit, int parameter) override;
  absl::Status GradientsReady(int unit) override;

 private:
  static constexpr int64_t kNone = -1;

  ParameterArrays() = default;
  static void* At(const device::Buffer& memory, const std::vector<int64_t>& offsets, int parameter);
  absl::Status CheckParameter(int parameter) const;

  Options options_;
  std::vector<int64_t> sizes_;
  std::vector<precision::DType> types_;
  // In bytes; of gradients, which frozen parameters do not have, kNone.
  std::vector<int64_t> weight_offsets_, gradient_offsets_;
  std::vector<bool> written_;
  device::Buffer weights_, gradients_;
};

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_PARAMETER_ARRAYS_H_
