#ifndef BRIGADE_MODELS_MODEL_H_
#define BRIGADE_MODELS_MODEL_H_

// What a training needs of a model, whatever it computes: units with named parameters, and the
// forward and backward pass of each.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/nn/gradient.h"
#include "brigade/profile/step_profile.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step.h"

namespace brigade::models {

// A micro-batch in device memory. What the arrays hold is the model's to say.
struct Batch {
  const void* inputs = nullptr;
  // Null: nothing to compare with, and no losses.
  const void* targets = nullptr;
  int64_t samples = 0;
  // Of each sample: tokens of a text, 1 for a model without.
  int64_t positions = 1;
  // For models with dropout, in training: [1], device memory, a number of the step's own, the same
  // in both passes (nn::DropoutMask::step). Null: nothing is dropped, as in an evaluation.
  const int64_t* step = nullptr;
  // The number of the first sample among all of the step, of all ranks and micro-batches: what is
  // dropped does then not depend on how many there are.
  int64_t first_sample = 0;

  int64_t rows() const { return samples * positions; }
};

// Device memory that a model has, by purpose, in bytes.
struct ModelMemory {
  int64_t activations = 0;
  int64_t scratch = 0;
};

// Operations of a unit's passes, [profile::Pass].
using UnitFlops = std::array<profile::Flops, profile::kPasses>;

// The weights of one acquired unit, and where its gradients go.
class UnitParameters {
 public:
  UnitParameters(const std::vector<bool>& trainable, zero::UnitScope& scope)
      : trainable_(trainable), scope_(scope) {}

  // By the parameter's number in the spec. Null for one below 0, which the unit does not have, and
  // after an error.
  const void* weights(int parameter) { return parameter < 0 ? nullptr : scope_.weights(parameter); }
  // Without data for a frozen one, and as above: layers leave such a gradient out.
  nn::Gradient gradient(int parameter);

  // The first error so far.
  const absl::Status& status() const { return scope_.status(); }

 private:
  const std::vector<bool>& trainable_;
  zero::UnitScope& scope_;
};

// A model with the memory of one micro-batch: a forward pass of all units in their order, and, if
// it is to be trained, the backward pass of all in the reverse order, before the next forward pass.
//
// Stream       Passes are enqueued on the one stream of all calls; they allocate nothing and never
//              wait.
class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Of zero::ZeroOptimizer::Create.
  const zero::ModelSpec& spec() const { return spec_; }
  // By the parameter's number in the spec.
  const std::vector<bool>& trainable() const { return trainable_; }

  // By formula: what the model has allocated of its device.
  virtual ModelMemory bytes() const { return {}; }

  // How many losses a batch has; each counts the same, but for those that the model leaves at 0.
  virtual int64_t LossesOf(const Batch& batch) const = 0;

  // For a profile, by formula (profile/flops.h): what the passes over a batch compute, the forward
  // pass, the backward pass, and RecomputeUnit. Nothing of a model that does not tell.
  virtual std::optional<UnitFlops> FlopsOf(int /*unit*/, const Batch& /*batch*/) const {
    return std::nullopt;
  }

  // Values of a new training: a function of the seed and the parameter alone.
  virtual void Initialize(int parameter, uint64_t seed, absl::Span<float> values) const = 0;

  // Of the last unit: writes losses [LossesOf(batch)], float (double for float64), device memory,
  // unless it is null.
  //
  // Errors       InvalidArgument naming a batch that the model has no memory for, before anything
  //              is enqueued; those of the layers and of `parameters`.
  virtual absl::Status ForwardUnit(int unit, const Batch& batch, void* losses,
                                   UnitParameters& parameters, device::Stream& stream) = 0;

  // Before the unit's backward pass: makes again what its forward pass has not kept.
  virtual absl::Status RecomputeUnit(int /*unit*/, const Batch& /*batch*/,
                                     UnitParameters& /*parameters*/, device::Stream& /*stream*/) {
    return absl::OkStatus();
  }

  // The unit's part of the gradient of seed * (sum of the losses); `seed` [1] is device memory,
  // which the last unit reads. For means over what counts, in a batch or in all of a step, the seed
  // has its share.
  virtual absl::Status BackwardUnit(int unit, const Batch& batch, const float* seed,
                                    UnitParameters& parameters, device::Stream& stream) = 0;

 protected:
  explicit Model(zero::ModelSpec spec);

 private:
  const zero::ModelSpec spec_;
  std::vector<bool> trainable_;
};

// Called before the stream gets a unit's pass.
using PassMark = std::function<absl::Status(profile::Pass pass, int unit)>;

// All units, as a ParameterSource has to be called: each is acquired for its pass, and its
// gradients are ready after its backward pass. `mark` may be null.
absl::Status Forward(Model& model, const Batch& batch, void* losses, zero::ParameterSource& source,
                     device::Stream& stream, const PassMark& mark = nullptr);
absl::Status Backward(Model& model, const Batch& batch, const float* seed,
                      zero::ParameterSource& source, device::Stream& stream,
                      const PassMark& mark = nullptr);

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_MODEL_H_
