#ifndef BRIGADE_TESTS_TRAIN_WRAPPED_MODEL_H_
#define BRIGADE_TESTS_TRAIN_WRAPPED_MODEL_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/models/model.h"

namespace brigade::train {

// A model whose passes are another's, and which tells of them what it has to, perhaps with units
// and parameters of other names.
class WrappedModel : public models::Model {
 public:
  explicit WrappedModel(std::unique_ptr<models::Model> model)
      : Model(model->spec()), model_(std::move(model)) {}
  WrappedModel(std::unique_ptr<models::Model> model, zero::ModelSpec spec)
      : Model(std::move(spec)), model_(std::move(model)) {}

  int64_t LossesOf(const models::Batch& batch) const override { return model_->LossesOf(batch); }
  void Initialize(int parameter, uint64_t seed, absl::Span<float> values) const override {
    model_->Initialize(parameter, seed, values);
  }
  absl::Status ForwardUnit(int unit, const models::Batch& batch, void* losses,
                           models::UnitParameters& parameters, device::Stream& stream) override {
    return model_->ForwardUnit(unit, batch, losses, parameters, stream);
  }
  absl::Status BackwardUnit(int unit, const models::Batch& batch, const float* seed,
                            models::UnitParameters& parameters, device::Stream& stream) override {
    return model_->BackwardUnit(unit, batch, seed, parameters, stream);
  }

 protected:
  const models::Model& wrapped() const { return *model_; }

 private:
  const std::unique_ptr<models::Model> model_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TESTS_TRAIN_WRAPPED_MODEL_H_
